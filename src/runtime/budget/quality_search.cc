#include "runtime/budget/quality_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log_sum_exp.h"
#include "base/statistics.h"
#include "runtime/generate/sampler.h"
#include "runtime/session/session.h"

namespace winnow::runtime {
namespace {

using tokenizer::TokenId;

// Ratio between successive budgets that are tried, and the smallest share of the text.
constexpr double kRatio = 0.7071067811865476;
constexpr double kSmallestShare = 1.0 / 64;
// Quantile of the normal distribution: one-sided, 95 %.
constexpr double kQuantile = 1.6448536269514722;

// Total tokens of the model's own continuations, and the maximum number of continuations: several
// if they end early.
constexpr int64_t kOwnTokens = 64;
constexpr int kOwnTexts = 8;
// Parts of the prompt that the model is asked to repeat: of kCandidates parts, the kParts for which
// it needs the prompt most. kCueTokens of a part's tokens name it, kPartTokens count.
constexpr int64_t kCandidates = 32;
constexpr int64_t kParts = 4;
constexpr int64_t kCueTokens = 8;
constexpr int64_t kPartTokens = 16;
constexpr const char* kPartText =
    "\n\nRepeat the part of the previous context exactly, starting with";

// NaN if one of the distributions is not valid.
double KlDivergence(std::span<const float> log_probs, std::span<const float> logits) {
  const double sum = LogSumExp(logits);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = log_probs[i], p = std::exp(log_p);
    if (p != 0) kl += p * (log_p - (logits[i] - sum));
  }
  return kl;
}

QualityEstimate EstimateFrom(std::vector<float> kls) {
  MeanEstimate mean;
  for (const float kl : kls) mean.Add(kl);
  QualityEstimate estimate = {.kl = mean.mean(),
                              .standard_error = mean.standard_error(),
                              .p99 = std::numeric_limits<double>::quiet_NaN(),
                              .n_tokens = mean.count()};
  if (kls.empty() || std::isnan(estimate.kl)) return estimate;
  std::ranges::sort(kls);
  estimate.p99 = Percentile(kls, 0.99);
  return estimate;
}

// Reads a probe after the session's text, passes the rows of logits that count to `row` one at a
// time, and truncates the session to the text again.
Result<void> Read(Session& session, int64_t n_text, const QualityProbe& probe,
                  const std::function<void(std::span<const float> logits)>& row) {
  const int64_t vocabulary = session.engine().model().hyperparameters().vocabulary;
  Session::PrefillOptions options;
  options.logits_from = probe.first;
  options.on_logits = [&](int64_t, std::span<const float> rows) {
    for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(vocabulary)) {
      row(rows.subspan(at, static_cast<size_t>(vocabulary)));
    }
  };
  WINNOW_TRY(session.Prefill(probe.tokens, options));
  session.Truncate(n_text);
  return {};
}

// Of the tokens that the counted logits predict.
Result<double> NegativeLogLikelihood(Session& session, int64_t n_text, const QualityProbe& probe) {
  double sum = 0;
  auto next = static_cast<size_t>(probe.first + 1);
  WINNOW_TRY(Read(session, n_text, probe, [&](std::span<const float> logits) {
    if (next == probe.tokens.size()) return;
    sum += LogSumExp(logits) - logits[static_cast<size_t>(probe.tokens[next++])];
  }));
  return sum;
}

}  // namespace

double QualityEstimate::bound() const { return kl + kQuantile * standard_error; }

Result<void> QualitySearch::CheckRoom(int64_t n_text, int64_t capacity) {
  if (capacity - n_text >= kOwnTokens) return {};
  return Error{"quality: a text of " + std::to_string(n_text) + " tokens leaves room for " +
               std::to_string(std::max<int64_t>(0, capacity - n_text)) + " in the context of " +
               std::to_string(capacity) + " tokens, an estimate needs " +
               std::to_string(kOwnTokens) + "; `context` gives it a larger one"};
}

Result<QualitySearch> QualitySearch::Begin(Session& full, std::span<const TokenId> prompt,
                                           double target, int64_t min_budget) {
  QualitySearch search;
  search.target_ = target;
  search.n_text_ = full.n_tokens();
  const int64_t room = full.capacity() - search.n_text_;
  WINNOW_TRY(search.AddOwnTexts(full));
  WINNOW_TRY(search.AddParts(full, prompt, room));
  WINNOW_TRY(search.ReadFull(full));
  const auto n_text = static_cast<double>(search.n_text_);
  const int64_t smallest =
      std::max({min_budget, int64_t{1}, static_cast<int64_t>(kSmallestShare * n_text)});
  for (double share = kRatio;; share *= kRatio) {
    const auto budget = static_cast<int64_t>(share * n_text);
    if (budget < smallest) break;
    search.budgets_.push_back(budget);
  }
  search.fails_ = search.budgets_.size();
  return search;
}

Result<void> QualitySearch::AddOwnTexts(Session& full) {
  const std::vector<float> first(full.logits().begin(), full.logits().end());
  const tokenizer::Tokenizer& tokenizer = full.engine().tokenizer();
  WINNOW_ASSIGN(
      Sampler sampler,
      Sampler::Make({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}, std::ssize(first)));
  int64_t left = kOwnTokens;
  for (int i = 0; i < kOwnTexts && left > 0; ++i) {
    QualityProbe probe;
    WINNOW_ASSIGN(TokenId token, sampler.Sample(first));
    // Tokens after the end of generation are of no use.
    for (; left > 0 && !tokenizer.IsEndOfGeneration(token); --left) {
      probe.tokens.push_back(token);
      WINNOW_TRY(full.Decode(token));
      WINNOW_ASSIGN(token, sampler.Sample(full.logits()));
    }
    full.Truncate(n_text_);
    if (!probe.tokens.empty()) probes_.push_back(std::move(probe));
  }
  return {};
}

Result<void> QualitySearch::AddParts(Session& full, std::span<const TokenId> prompt, int64_t room) {
  const std::vector<TokenId> text =
      full.engine().tokenizer().Encode(kPartText, {.add_special = false, .parse_special = false});
  const int64_t n = std::ssize(prompt), n_part = kCueTokens + kPartTokens;
  if (std::ssize(text) + n_part > room || n < n_part) return {};
  WINNOW_ASSIGN(const std::unique_ptr<Session> empty,
                Session::Make(full.engine(), {.context = std::ssize(text) + n_part}));
  struct Candidate {
    QualityProbe probe;
    double gain = 0;  // how much the prompt helps, in nats
  };
  std::vector<Candidate> candidates;
  for (int64_t i = 0; i < kCandidates; ++i) {
    const auto from = static_cast<size_t>((n - n_part) * (2 * i + 1) / (2 * kCandidates));
    QualityProbe probe = {.tokens = text, .first = std::ssize(text) + kCueTokens - 1};
    const auto part = prompt.subspan(from, static_cast<size_t>(n_part));
    probe.tokens.insert(probe.tokens.end(), part.begin(), part.end());
    WINNOW_ASSIGN(const double with, NegativeLogLikelihood(full, n_text_, probe));
    WINNOW_ASSIGN(const double without, NegativeLogLikelihood(*empty, 0, probe));
    candidates.push_back({std::move(probe), without - with});
  }
  std::ranges::stable_sort(candidates, std::ranges::greater(), &Candidate::gain);
  for (int64_t i = 0; i < kParts; ++i) {
    probes_.push_back(std::move(candidates[static_cast<size_t>(i)].probe));
  }
  return {};
}

Result<void> QualitySearch::ReadFull(Session& full) {
  for (const QualityProbe& probe : probes_) {
    WINNOW_TRY(Read(full, n_text_, probe, [&](std::span<const float> logits) {
      const size_t at = log_probs_.size();
      log_probs_.resize(at + logits.size());
      LogSoftmax(logits, std::span(log_probs_).subspan(at));
    }));
  }
  return {};
}

std::optional<int64_t> QualitySearch::next() const {
  if (passes_ == fails_) return std::nullopt;
  return budgets_[NextIndex()];
}

Result<void> QualitySearch::Try(Session& compressed) {
  WINNOW_CHECK(passes_ < fails_);
  std::vector<float> kls;
  size_t at = 0;
  for (const QualityProbe& probe : probes_) {
    WINNOW_TRY(Read(compressed, n_text_, probe, [&](std::span<const float> logits) {
      kls.push_back(static_cast<float>(
          KlDivergence(std::span(log_probs_).subspan(at, logits.size()), logits)));
      at += logits.size();
    }));
  }
  const size_t i = NextIndex();
  const QualityEstimate estimate = EstimateFrom(std::move(kls));
  // No tokens, or a NaN, is not within the target.
  if (estimate.n_tokens > 0 && estimate.bound() <= target_) {
    passes_ = i + 1;
    estimate_ = estimate;
  } else {
    fails_ = i;
  }
  ++n_tried_;
  return {};
}

QualityFound QualitySearch::found() const {
  WINNOW_CHECK(passes_ == fails_);
  const int64_t budget = passes_ > 0 ? budgets_[passes_ - 1] : n_text_;
  return {.budget = budget,
          .share = static_cast<double>(budget) / static_cast<double>(n_text_),
          .estimate = estimate_,
          .n_tried = n_tried_};
}

}  // namespace winnow::runtime

#include "runtime/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/check.h"

namespace winnow::runtime {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::string FormatNumber(double value) {
  std::string text = std::to_string(value);
  while (text.size() > 1 && text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

Result<void> CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return Error{std::string("sampling: ") + name + " is " + FormatNumber(value) + ", expected " +
               FormatNumber(low) + " to " + FormatNumber(high)};
}

Result<void> Validate(const SamplerConfig& c, int64_t vocabulary) {
  constexpr double kLarge = 1e6;
  WINNOW_TRY(CheckRange("temperature", c.temperature, -kLarge, kLarge));
  WINNOW_TRY(CheckRange("top_p", c.top_p, 0, 1));
  WINNOW_TRY(CheckRange("min_p", c.min_p, 0, 1));
  WINNOW_TRY(CheckRange("typical_p", c.typical_p, 0, 1));
  WINNOW_TRY(CheckRange("repeat_penalty", c.repeat_penalty, 1e-3, kLarge));
  WINNOW_TRY(CheckRange("repeat_last_n", c.repeat_last_n, -1, std::numeric_limits<int>::max()));
  WINNOW_TRY(CheckRange("presence_penalty", c.presence_penalty, -kLarge, kLarge));
  WINNOW_TRY(CheckRange("frequency_penalty", c.frequency_penalty, -kLarge, kLarge));
  for (const auto& [token, bias] : c.logit_bias) {
    if (token < 0 || token >= vocabulary) {
      return Error{"sampling: logit_bias names token " + std::to_string(token) +
                   ", expected 0 to " + std::to_string(vocabulary - 1)};
    }
    if (std::isnan(bias)) {
      return Error{"sampling: logit_bias of token " + std::to_string(token) + " is NaN"};
    }
  }
  return {};
}

// The finite float nearest to `value`.
float NearestFloat(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

Error AllBanned() {
  return {.message = "sampling: `logit_bias` bans every token that could come next",
          .code = ErrorCode::kInvalid};
}

// The order of a sorted list of candidates: most likely first, ties by id.
struct MoreLikely {
  template <typename C>
  bool operator()(const C& a, const C& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

}  // namespace

Result<Sampler> Sampler::Make(const SamplerConfig& config, int64_t vocabulary) {
  WINNOW_CHECK(vocabulary > 0);
  WINNOW_TRY(Validate(config, vocabulary));
  return Sampler(config, vocabulary);
}

Sampler::Sampler(const SamplerConfig& config, int64_t vocabulary)
    : config_(config), vocabulary_(vocabulary), rng_(config.seed) {}

void Sampler::Accept(int32_t token) {
  WINNOW_CHECK(token >= 0 && token < vocabulary_);
  if (config_.repeat_last_n == 0) return;
  const bool whole_text = config_.repeat_last_n < 0;
  if (whole_text || history_.size() < static_cast<size_t>(config_.repeat_last_n)) {
    history_.push_back(token);
  } else {
    history_[oldest_] = token;
    oldest_ = (oldest_ + 1) % history_.size();
  }
}

void Sampler::Reset() {
  history_.clear();
  oldest_ = 0;
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  WINNOW_CHECK(static_cast<int64_t>(logits.size()) == vocabulary_);
  logits_.assign(logits.begin(), logits.end());
  for (float& logit : logits_) {
    // Differences with a largest logit of +inf would be NaN.
    logit = std::isnan(logit) ? kMinusInfinity : std::min(logit, std::numeric_limits<float>::max());
  }
  ApplyBiasAndPenalties();
  if (config_.temperature <= 0) {
    const int32_t best = Greedy();
    if (logits_[static_cast<size_t>(best)] == kMinusInfinity) return AllBanned();
    return best;
  }
  CollectTopK();
  if (candidates_.empty()) return AllBanned();
  if (config_.typical_p < 1) KeepTypical();
  KeepTopP();
  return Draw();
}

void Sampler::ApplyBiasAndPenalties() {
  // A token is impossible before or by a bias of -inf, never by a sum beyond the range of float.
  for (const auto& [token, bias] : config_.logit_bias) {
    float& logit = logits_[static_cast<size_t>(token)];
    const bool possible = logit != kMinusInfinity && bias != kMinusInfinity;
    logit = possible ? NearestFloat(static_cast<double>(logit) + bias) : kMinusInfinity;
  }
  const bool none = config_.repeat_penalty == 1.0 && config_.presence_penalty == 0 &&
                    config_.frequency_penalty == 0;
  if (none || history_.empty()) return;
  recent_.assign(history_.begin(), history_.end());
  std::sort(recent_.begin(), recent_.end());
  for (size_t first = 0; first < recent_.size();) {
    size_t last = first;
    while (last < recent_.size() && recent_[last] == recent_[first]) ++last;
    float& logit = logits_[static_cast<size_t>(recent_[first])];
    double value = logit;
    value = value <= 0 ? value * config_.repeat_penalty : value / config_.repeat_penalty;
    value -= static_cast<double>(last - first) * config_.frequency_penalty;
    value -= config_.presence_penalty;
    if (logit != kMinusInfinity) logit = NearestFloat(value);
    first = last;
  }
}

int32_t Sampler::Greedy() const {
  size_t best = 0;
  for (size_t token = 1; token < logits_.size(); ++token) {
    if (logits_[token] > logits_[best]) best = token;
  }
  return static_cast<int32_t>(best);
}

// Fills candidates_ with the top_k most likely tokens in sorted order, or with all possible ones
// unsorted.
void Sampler::CollectTopK() {
  candidates_.clear();
  const bool limited = config_.top_k > 0 && config_.top_k < vocabulary_;
  if (!limited) {
    for (size_t token = 0; token < logits_.size(); ++token) {
      if (logits_[token] != kMinusInfinity) {
        candidates_.push_back({static_cast<int32_t>(token), logits_[token]});
      }
    }
    return;
  }
  // Collects up to 2k logits above the running threshold, then drops the lower half: one pass over
  // the logits, and the comparison nearly always fails.
  const size_t k = static_cast<size_t>(config_.top_k);
  const auto kth = static_cast<std::ptrdiff_t>(k - 1);
  float threshold = kMinusInfinity;
  for (size_t token = 0; token < logits_.size(); ++token) {
    if (!(logits_[token] > threshold)) continue;
    candidates_.push_back({static_cast<int32_t>(token), logits_[token]});
    if (candidates_.size() == 2 * k) {
      std::nth_element(candidates_.begin(), candidates_.begin() + kth, candidates_.end(),
                       MoreLikely());
      candidates_.resize(k);
      threshold = candidates_.back().logit;
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), MoreLikely());
  if (candidates_.size() > k) candidates_.resize(k);
}

// Locally typical sampling (arXiv:2202.00666): the tokens whose surprise is nearest to the entropy,
// until their probability reaches typical_p.
void Sampler::KeepTypical() {
  float largest = kMinusInfinity;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.logit);
  double total = 0;
  for (const Candidate& c : candidates_) total += std::exp(static_cast<double>(c.logit) - largest);
  const double log_total = std::log(total);
  double entropy = 0;
  for (const Candidate& c : candidates_) {
    const double log_p = static_cast<double>(c.logit) - largest - log_total;
    entropy -= std::exp(log_p) * log_p;
  }
  by_information_.clear();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const double log_p = static_cast<double>(candidates_[i].logit) - largest - log_total;
    by_information_.emplace_back(std::abs(-log_p - entropy), i);
  }
  std::sort(by_information_.begin(), by_information_.end());
  double kept_p = 0;
  size_t n_kept = 0;
  while (n_kept < by_information_.size() && (n_kept == 0 || kept_p < config_.typical_p)) {
    const Candidate& c = candidates_[by_information_[n_kept++].second];
    kept_p += std::exp(static_cast<double>(c.logit) - largest - log_total);
  }
  std::vector<Candidate>& all = candidates_;
  // Moves the kept candidates to the front, in index order, so that none is overwritten before it
  // is read.
  std::sort(by_information_.begin(), by_information_.begin() + static_cast<std::ptrdiff_t>(n_kept),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  for (size_t i = 0; i < n_kept; ++i) all[i] = all[by_information_[i].second];
  all.resize(n_kept);
}

// top_p and min_p in one: both keep a head of the sorted list, and the share min_p looks at does
// not change when top_p removes the tail, so the result is the shorter head. min_p goes first
// because it needs no sorting.
void Sampler::KeepTopP() {
  float largest = kMinusInfinity;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.logit);
  double total = 0;
  if (config_.top_p < 1) {
    for (const Candidate& c : candidates_) {
      total += std::exp(static_cast<double>(c.logit) - largest);
    }
  }
  if (config_.min_p > 0) {
    const double min = static_cast<double>(largest) + std::log(config_.min_p);
    std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < min; });
  }
  if (config_.top_p >= 1) return;
  // Sorts as much of the head as it needs, in growing pieces.
  double kept = 0;
  size_t n_sorted = 0;
  for (size_t piece = 256; n_sorted < candidates_.size(); piece *= 4) {
    const size_t end = std::min(candidates_.size(), n_sorted + piece);
    std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(n_sorted),
                      candidates_.begin() + static_cast<std::ptrdiff_t>(end), candidates_.end(),
                      MoreLikely());
    for (; n_sorted < end; ++n_sorted) {
      kept += std::exp(static_cast<double>(candidates_[n_sorted].logit) - largest);
      if (kept >= config_.top_p * total) {
        candidates_.resize(n_sorted + 1);
        return;
      }
    }
  }
}

int32_t Sampler::Draw() {
  float largest = kMinusInfinity;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.logit);
  weights_.clear();
  double total = 0;
  for (const Candidate& c : candidates_) {
    weights_.push_back(std::exp((static_cast<double>(c.logit) - largest) / config_.temperature));
    total += weights_.back();
  }
  double rest = rng_.Uniform() * total;
  size_t last_possible = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0) continue;
    last_possible = i;
    rest -= weights_[i];
    if (rest < 0) break;
  }
  return candidates_[last_possible].token;
}

void BanEndOfGeneration(const tokenizer::Tokenizer& tokenizer, SamplerConfig& config) {
  for (const int32_t token : tokenizer.end_of_generation()) {
    config.logit_bias.emplace_back(token, kMinusInfinity);
  }
}

}  // namespace winnow::runtime

#include "eval/run/compare.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/log_sum_exp.h"
#include "eval/probes/kept_tracker.h"
#include "runtime/logits.h"

namespace winnow::eval {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::Session;
using runtime::TokenId;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The full cache's distributions before each token of its answer.
struct Base {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> log_probs;
};

class Comparison {
 public:
  Comparison(runtime::Engine& engine, std::span<const TokenId> prompt,
             const CompareOptions& options)
      : engine_(engine), prompt_(prompt), options_(options) {}

  // False: stopped.
  Result<bool> Run(runtime::SessionOptions session_options, const Candidate& candidate) {
    session_options.compression = candidate.compression;
    if (candidate.equal_bytes > 0) {
      WINNOW_ASSIGN(auto chosen, AtEqualBytes(engine_, session_options, candidate.equal_bytes,
                                              prompt_, [this] { return KeepGoing(); }));
      if (!chosen) return false;
      session_options = *std::move(chosen);
    }
    KeptTracker tracker;
    runtime::SessionOptions own = session_options;
    if (options_.follow_tokens) own.compression = tracker.Following(own.compression);
    WINNOW_ASSIGN(std::unique_ptr<Session> session, Session::Make(engine_, own));
    const compression::MethodPtr& method = session_options.compression.method;
    Answer answer;
    answer.method = method ? method->traits().spec : "full";
    answer.budget = candidate.budget;
    answer.equal_bytes = candidate.equal_bytes;
    const bool is_base = base_.tokens.empty();
    const Clock::time_point start = Clock::now();
    Session::PrefillOptions prefill;
    prefill.progress = [&](double) { return KeepGoing(); };
    WINNOW_ASSIGN(const bool finished, session->Prefill(prompt_, prefill));
    if (!finished) return false;
    const double prefill_ms = MillisecondsSince(start);
    Measure(*session, answer);
    if (options_.follow_tokens) {
      const auto n_prompt = static_cast<int64_t>(prompt_.size());
      tracker.Close(session->cache(), n_prompt);
      answer.states = tracker.States(n_prompt);
    }
    std::unique_ptr<Session> fed;
    if (!is_base) {
      WINNOW_ASSIGN(fed, session->Fork());
    }

    WINNOW_ASSIGN(const bool answered, Continue(*session, prefill_ms, is_base, answer));
    if (!answered) return false;
    if (is_base) {
      base_.tokens = answer.tokens;
    } else {
      WINNOW_ASSIGN(const bool compared, Feed(*fed, answer));
      if (!compared) return false;
    }
    if (options_.on_answer) options_.on_answer(answer);
    answers_.push_back(std::move(answer));
    return true;
  }

  std::vector<Answer> TakeAnswers() { return std::move(answers_); }

 private:
  bool KeepGoing() const { return !options_.keep_going || options_.keep_going(); }

  static void Measure(const Session& session, Answer& answer) {
    const int n_layers = session.cache().config().shape.n_layers;
    for (int layer = 0; layer < n_layers; ++layer) answer.kept += session.kept(layer);
    answer.kept /= n_layers;
    answer.n_seen = session.n_tokens();
    answer.cache_bytes = session.cache_bytes();
    answer.cache_bytes_with_lists = session.cache_bytes_with_lists();
    answer.cache_bytes_full_f16 = session.cache_bytes_full_f16();
    answer.cache_parts = session.cache_parts();
  }

  Result<bool> Continue(Session& session, double prefill_ms, bool is_base, Answer& answer) {
    const tokenizer::Tokenizer& tokenizer = engine_.tokenizer();
    Clock::time_point first = Clock::now();
    for (int64_t n = 0; n < options_.max_tokens; ++n) {
      if (n > 0) {
        if (session.room() == 0) break;
        WINNOW_TRY(session.Decode(answer.tokens.back()));
      }
      WINNOW_TRY(runtime::CheckLogits(session));
      const std::span<const float> logits = session.logits();
      if (is_base) KeepLogProbs(logits);
      const auto token =
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      answer.tokens.push_back(token);
      if (n == 0) {
        answer.first_token_ms = prefill_ms + MillisecondsSince(first);
        first = Clock::now();
      }
      if (tokenizer.IsEndOfGeneration(token)) break;
      if (!KeepGoing()) return false;
    }
    const double decode_ms = MillisecondsSince(first);
    const auto n_decoded = static_cast<double>(answer.tokens.size()) - 1;
    if (n_decoded > 0 && decode_ms > 0) answer.tokens_per_second = 1000 * n_decoded / decode_ms;
    answer.text = tokenizer.Decode(answer.tokens);
    return true;
  }

  void KeepLogProbs(std::span<const float> logits) {
    const double log_sum = LogSumExp(logits);
    std::vector<float>& row = base_.log_probs.emplace_back(logits.size());
    std::transform(logits.begin(), logits.end(), row.begin(),
                   [log_sum](float logit) { return static_cast<float>(logit - log_sum); });
  }

  Result<bool> Feed(Session& session, Answer& answer) {
    for (size_t i = 0; i < base_.tokens.size(); ++i) {
      if (i > 0) {
        if (session.room() == 0) break;
        WINNOW_TRY(session.Decode(base_.tokens[i - 1]));
      }
      answer.against_full.Add(
          RowComparison::Of(session.logits(), base_.log_probs[i], base_.tokens[i]));
      if (!KeepGoing()) return false;
    }
    return true;
  }

  runtime::Engine& engine_;
  std::span<const TokenId> prompt_;
  const CompareOptions& options_;
  Base base_;
  std::vector<Answer> answers_;
};

}  // namespace

Result<std::vector<Answer>> Compare(runtime::Engine& engine,
                                    const runtime::SessionOptions& session_options,
                                    std::span<const Candidate> candidates,
                                    std::span<const TokenId> prompt,
                                    const CompareOptions& options) {
  if (prompt.empty()) return Error{"the prompt is empty"};
  Comparison comparison(engine, prompt, options);
  WINNOW_ASSIGN(bool goes_on, comparison.Run(session_options, Candidate{}));
  for (const Candidate& candidate : candidates) {
    if (!goes_on) break;
    auto run = comparison.Run(session_options, candidate);
    if (!run) return Error{candidate.Name() + ": " + run.error().message};
    goes_on = *run;
  }
  return comparison.TakeAnswers();
}

}  // namespace winnow::eval

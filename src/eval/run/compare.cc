#include "eval/run/compare.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/log_sum_exp.h"
#include "eval/probes/kept_tracker.h"
#include "runtime/generate/logits.h"

namespace winnow::eval {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::Session;
using runtime::TokenId;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The full cache's answer to a question, and its distributions before each token.
struct Base {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> log_probs;
};

class Comparison {
 public:
  Comparison(runtime::Engine& engine, const ComparedPrompt& prompt, const CompareOptions& options)
      : engine_(engine),
        prompt_(prompt),
        options_(options),
        bases_(std::max<size_t>(1, prompt.questions.size())) {}

  // False: stopped.
  Result<bool> Run(runtime::SessionOptions session_options, const Candidate& candidate) {
    session_options.compression = candidate.compression;
    if (candidate.equal_bytes > 0) {
      WINNOW_ASSIGN(auto chosen, AtEqualBytes(engine_, session_options, candidate.equal_bytes,
                                              prompt_.tokens, [this] { return KeepGoing(); }));
      if (!chosen) return false;
      session_options = std::move(chosen->options);
    }
    KeptTracker tracker;
    runtime::SessionOptions own = session_options;
    if (options_.follow_tokens) own.compression = tracker.Following(own.compression);
    WINNOW_ASSIGN(std::unique_ptr<Session> session, Session::Make(engine_, own));
    const compression::MethodPtr& method = session_options.compression.method;
    ComparedCache cache;
    cache.method = method ? method->traits().spec : "full";
    cache.budget = candidate.budget;
    cache.equal_bytes = candidate.equal_bytes;
    const Clock::time_point start = Clock::now();
    Session::PrefillOptions prefill;
    prefill.progress = [&](double) { return KeepGoing(); };
    WINNOW_ASSIGN(const bool finished, session->Prefill(prompt_.tokens, prefill));
    if (!finished) return false;
    cache.read_ms = MillisecondsSince(start);
    Measure(*session, cache);
    if (options_.follow_tokens) {
      const auto n_prompt = static_cast<int64_t>(prompt_.tokens.size());
      tracker.Close(session->cache(), n_prompt);
      cache.states = tracker.States(n_prompt);
    }
    for (size_t i = 0; i < bases_.size(); ++i) {
      // The last one needs no copy.
      std::unique_ptr<Session> copy;
      if (i + 1 < bases_.size()) {
        WINNOW_ASSIGN(copy, session->Fork());
      }
      WINNOW_ASSIGN(const bool answered, Ask(copy ? *copy : *session, i, cache));
      if (!answered) return false;
    }
    caches_.push_back(std::move(cache));
    if (options_.on_cache) options_.on_cache();
    return true;
  }

  std::vector<ComparedCache> TakeCaches() { return std::move(caches_); }

 private:
  bool KeepGoing() const { return !options_.keep_going || options_.keep_going(); }

  static void Measure(const Session& session, ComparedCache& to) {
    const int n_layers = session.cache().config().shape.n_layers;
    for (int layer = 0; layer < n_layers; ++layer) to.kept += session.kept(layer);
    to.kept /= n_layers;
    to.n_seen = session.n_tokens();
    to.cache_bytes = session.cache_bytes();
    to.cache_bytes_with_lists = session.cache_bytes_with_lists();
    to.cache_bytes_full_f16 = session.cache_bytes_full_f16();
    to.cache_parts = session.cache_parts();
  }

  // Appends an answer to `cache`. False: stopped.
  Result<bool> Ask(Session& session, size_t number, ComparedCache& cache) {
    Base& base = bases_[number];
    const bool is_base = caches_.empty();
    const Clock::time_point start = Clock::now();
    if (!prompt_.questions.empty()) {
      for (const TokenId token : prompt_.questions[number]) {
        WINNOW_TRY(session.Decode(token));
        if (!KeepGoing()) return false;
      }
    }
    const double read_ms = prompt_.questions.empty() ? cache.read_ms : MillisecondsSince(start);
    std::unique_ptr<Session> fed;
    if (!is_base) {
      WINNOW_ASSIGN(fed, session.Fork());
    }
    Answer& answer = cache.answers.emplace_back();
    WINNOW_ASSIGN(const bool answered,
                  Continue(session, read_ms, is_base ? &base.log_probs : nullptr, answer));
    if (!answered) return false;
    if (!is_base) return Feed(*fed, base, answer, cache);
    base.tokens = answer.tokens;
    return true;
  }

  Result<bool> Continue(Session& session, double read_ms,
                        std::vector<std::vector<float>>* log_probs, Answer& answer) {
    const tokenizer::Tokenizer& tokenizer = engine_.tokenizer();
    Clock::time_point first = Clock::now();
    for (int64_t n = 0; n < options_.max_tokens; ++n) {
      if (n > 0) {
        if (session.room() == 0) break;
        WINNOW_TRY(session.Decode(answer.tokens.back()));
      }
      WINNOW_TRY(runtime::CheckLogits(session));
      const std::span<const float> logits = session.logits();
      if (log_probs != nullptr) LogSoftmax(logits, log_probs->emplace_back(logits.size()));
      const auto token =
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      answer.tokens.push_back(token);
      if (n == 0) {
        answer.first_token_ms = read_ms + MillisecondsSince(first);
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

  Result<bool> Feed(Session& session, const Base& base, Answer& answer, ComparedCache& cache) {
    for (size_t i = 0; i < base.tokens.size(); ++i) {
      if (i > 0) {
        if (session.room() == 0) break;
        WINNOW_TRY(session.Decode(base.tokens[i - 1]));
      }
      const auto row = RowComparison::Make(session.logits(), base.log_probs[i], base.tokens[i]);
      answer.against_full.Add(row);
      cache.against_full.Add(row);
      if (!KeepGoing()) return false;
    }
    return true;
  }

  runtime::Engine& engine_;
  const ComparedPrompt& prompt_;
  const CompareOptions& options_;
  std::vector<Base> bases_;  // [question]
  std::vector<ComparedCache> caches_;
};

}  // namespace

Result<std::vector<ComparedCache>> Compare(runtime::Engine& engine,
                                           const runtime::SessionOptions& session_options,
                                           std::span<const Candidate> candidates,
                                           const ComparedPrompt& prompt,
                                           const CompareOptions& options) {
  if (prompt.tokens.empty()) return Error{"the prompt is empty"};
  Comparison comparison(engine, prompt, options);
  WINNOW_ASSIGN(bool goes_on, comparison.Run(session_options, Candidate{}));
  for (const Candidate& candidate : candidates) {
    if (!goes_on) break;
    auto run = comparison.Run(session_options, candidate);
    if (!run) return Error{candidate.Name() + ": " + run.error().message};
    goes_on = *run;
  }
  return comparison.TakeCaches();
}

}  // namespace winnow::eval

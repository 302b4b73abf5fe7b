#include "eval/run/batch_run.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/check.h"
#include "eval/run/workload.h"
#include "runtime/session/batch.h"

namespace winnow::eval {
namespace {

using runtime::Session;
using runtime::TokenId;
using Clock = std::chrono::steady_clock;

int64_t NanosecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

// `n` tokens from `first` on, wrapping around at the end.
std::vector<TokenId> TokensWrapping(std::span<const TokenId> tokens, int64_t first, int64_t n) {
  std::vector<TokenId> some;
  for (int64_t i = first; i < first + n; ++i) {
    some.push_back(tokens[static_cast<size_t>(i) % tokens.size()]);
  }
  return some;
}

}  // namespace

Result<std::vector<std::unique_ptr<Session>>> MakeSessions(runtime::Engine& engine,
                                                           const runtime::SessionOptions& options,
                                                           int64_t n_sequences) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (int64_t i = 0; i < n_sequences; ++i) {
    WINNOW_ASSIGN(auto session, Session::Make(engine, options));
    sessions.push_back(std::move(session));
  }
  return sessions;
}

Result<BatchTimes> RunBatch(std::span<const std::unique_ptr<Session>> sessions,
                            const runtime::BatchShape& shape, std::span<const TokenId> tokens,
                            const std::function<bool(double done)>& keep_going) {
  WINNOW_CHECK(!sessions.empty() && !tokens.empty());
  const auto n = static_cast<int64_t>(sessions.size());
  for (const auto& session : sessions) {
    if (session->n_tokens() + shape.n_prompt + shape.n_generate <= session->capacity()) continue;
    return Error{"session: " + std::to_string(shape.n_prompt) + "+" +
                 std::to_string(shape.n_generate) + " tokens after " +
                 std::to_string(session->n_tokens()) + " do not fit a context of " +
                 std::to_string(session->capacity())};
  }
  for (const auto& session : sessions) {
    WINNOW_TRY(session->Reserve(shape.n_prompt, shape.n_generate));
  }
  // Counts a step as much work as one prompt token; only the progress share depends on it.
  const double n_parts = static_cast<double>(n * shape.n_prompt + shape.n_generate);
  BatchTimes times;
  Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < n && shape.n_prompt > 0; ++i) {
    // Give every sequence a different text.
    const std::vector<TokenId> prompt = TokensWrapping(tokens, i, shape.n_prompt);
    Session::PrefillOptions options;
    if (keep_going) {
      options.progress = [&](double done) {
        return keep_going((static_cast<double>(i) + done) * static_cast<double>(shape.n_prompt) /
                          n_parts);
      };
    }
    WINNOW_ASSIGN(const bool finished, sessions[static_cast<size_t>(i)]->Prefill(prompt, options));
    times.stopped |= !finished;
    if (times.stopped) return times;
  }
  times.prefill_ns = NanosecondsSince(start);

  runtime::Batch batch(sessions.front()->engine());
  std::vector<Session*> all;
  for (const auto& session : sessions) all.push_back(session.get());
  std::vector<TokenId> next(all.size());
  for (int64_t step = 0; step < shape.n_generate; ++step) {
    for (size_t i = 0; i < next.size(); ++i) {
      next[i] = tokens[(static_cast<size_t>(step) + i) % tokens.size()];
    }
    start = Clock::now();
    WINNOW_TRY(batch.Decode(all, next));
    const int64_t step_ns = NanosecondsSince(start);
    times.decode_ns += step_ns;
    times.longest_step_ns = std::max(times.longest_step_ns, step_ns);
    if (keep_going && !keep_going(static_cast<double>(n * shape.n_prompt + step + 1) / n_parts)) {
      times.stopped = true;
      break;
    }
  }
  for (const auto& session : sessions) {
    Outcome outcome;
    MeasureCache(*session, outcome);
    times.cache_bytes += outcome.cache_bytes;
    times.cache_bytes_with_lists += outcome.cache_bytes_with_lists;
    times.kept += outcome.kept / static_cast<double>(n);
  }
  return times;
}

}  // namespace winnow::eval

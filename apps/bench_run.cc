#include "bench_run.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "eval/run/batch_run.h"
#include "kv_flags.h"
#include "runtime/session/repeat_entries.h"

namespace winnow::apps {
namespace {

using Clock = std::chrono::steady_clock;

// Warm-up: prompt tokens that are read before the first repetition, or for every sequence of a
// batch. They grow the buffers and bring the weights into memory without reading a whole long
// prompt.
constexpr int64_t kWarmUpTokens = 128, kWarmUpTokensOfBatch = 16;

// If nothing is evicted, a deep cache is filled with the entries of this many tokens, repeated. The
// contents do not affect the speed, and a long prompt need not be read.
constexpr int64_t kRepeatedTokens = 512;

int64_t Nanoseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

std::string BenchTest::Name() const {
  std::string name;
  if (n_prompt > 0) name = "pp" + std::to_string(n_prompt);
  if (n_generate > 0) name += (name.empty() ? "tg" : "+tg") + std::to_string(n_generate);
  return name + (depth > 0 ? " @ d" + std::to_string(depth) : "");
}

std::vector<runtime::TokenId> RandomTokens(const runtime::Engine& engine, int64_t n) {
  Rng rng(1);
  const int64_t vocabulary = engine.model().hyperparameters().vocabulary;
  std::vector<runtime::TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<runtime::TokenId>(rng.Below(static_cast<uint64_t>(vocabulary))));
  }
  return tokens;
}

BenchRunner::BenchRunner(runtime::Session& session, const std::atomic<bool>& interrupted)
    : session_(session),
      interrupted_(interrupted),
      vocabulary_(session.engine().model().hyperparameters().vocabulary) {}

Result<std::vector<BenchSample>> BenchRunner::Measure(const BenchTest& test, int64_t repetitions,
                                                      bool warmup) {
  if (session_.n_tokens() > test.depth) session_.Truncate(test.depth);
  if (session_.n_tokens() < test.depth) {
    WINNOW_TRY(Fill(test.depth));
  }
  const auto once = [&](const BenchTest& t) { return t.batched ? BatchOnce(t) : Once(t); };
  if (warmup) {
    BenchTest first = test;
    first.n_generate = std::min<int64_t>(test.n_generate, 1);
    // A ratio of a short prompt may be below the method's minimum: read the whole prompt.
    if (session_.compression().ratio == 0) {
      const int64_t few = test.batched ? kWarmUpTokensOfBatch : kWarmUpTokens;
      first.n_prompt = std::min(test.n_prompt, few);
    }
    WINNOW_TRY(once(first));
  }
  std::vector<BenchSample> samples;
  while (static_cast<int64_t>(samples.size()) < repetitions && !interrupted_) {
    WINNOW_ASSIGN(const BenchSample sample, once(test));
    if (!interrupted_) samples.push_back(sample);  // drop a repetition that was interrupted
  }
  return samples;
}

Result<void> BenchRunner::Fill(int64_t depth) {
  // A prompt read whole is compressed once, so start anew. One read in chunks can be extended.
  if (evicts() && session_.compression().prefill_chunk == 0) session_.Reset();
  const int64_t n_read = evicts() ? depth : std::min(depth, kRepeatedTokens);
  if (session_.n_tokens() < n_read) {
    WINNOW_TRY(session_.Prefill(RandomTokens(n_read - session_.n_tokens())));
  }
  while (session_.n_tokens() < depth) {
    WINNOW_TRY(
        runtime::RepeatEntries(session_, std::min(kRepeatedTokens, depth - session_.n_tokens())));
  }
  return {};
}

Result<BenchSample> BenchRunner::Once(const BenchTest& test) {
  std::unique_ptr<runtime::Session> copy;
  if (evicts()) {
    WINNOW_ASSIGN(copy, session_.Fork());
  } else {
    session_.Truncate(test.depth);
  }
  runtime::Session& session = copy ? *copy : session_;
  const std::vector<runtime::TokenId> prompt = RandomTokens(test.n_prompt);
  const std::vector<runtime::TokenId> generated = RandomTokens(test.n_generate);
  BenchSample sample;
  const Clock::time_point start = Clock::now();
  runtime::Session::PrefillOptions prefill;
  prefill.progress = [&](double) { return !interrupted_; };
  if (!prompt.empty()) WINNOW_TRY(session.Prefill(prompt, prefill));
  const Clock::time_point prefilled = Clock::now();
  Clock::time_point before = prefilled;
  for (const runtime::TokenId token : generated) {
    if (interrupted_) break;
    WINNOW_TRY(session.Decode(token));
    const Clock::time_point after = Clock::now();
    sample.longest_step_ns = std::max(sample.longest_step_ns, Nanoseconds(after - before));
    before = after;
  }
  sample.prefill_ns = Nanoseconds(prefilled - start);
  sample.decode_ns = Nanoseconds(before - prefilled);
  caches_ = {.kept = MeanKept(session),
             .bytes = session.cache_bytes(),
             .bytes_with_lists = session.cache_bytes_with_lists(),
             .bytes_full_f16 = session.cache_bytes_full_f16()};
  return sample;
}

Result<BenchSample> BenchRunner::BatchOnce(const BenchTest& test) {
  std::vector<std::unique_ptr<runtime::Session>> sessions;
  for (int64_t i = 0; i < test.n_sequences; ++i) {
    WINNOW_ASSIGN(auto session, session_.Fork());
    sessions.push_back(std::move(session));
  }
  const std::vector<runtime::TokenId> tokens =
      RandomTokens(test.n_prompt + test.n_generate + test.n_sequences);
  WINNOW_ASSIGN(const eval::BatchTimes times,
                eval::RunBatch(sessions, {.n_prompt = test.n_prompt, .n_generate = test.n_generate},
                               tokens, [&](double) { return !interrupted_; }));
  caches_ = {.kept = times.kept,
             .bytes = times.cache_bytes,
             .bytes_with_lists = times.cache_bytes_with_lists,
             .bytes_full_f16 = sessions.front()->cache_bytes_full_f16() * test.n_sequences};
  return BenchSample{.prefill_ns = times.prefill_ns,
                     .decode_ns = times.decode_ns,
                     .longest_step_ns = times.longest_step_ns};
}

std::vector<runtime::TokenId> BenchRunner::RandomTokens(int64_t n) {
  std::vector<runtime::TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<runtime::TokenId>(rng_.Below(static_cast<uint64_t>(vocabulary_))));
  }
  return tokens;
}

}  // namespace winnow::apps

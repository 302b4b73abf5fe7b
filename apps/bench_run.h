#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "runtime/session/session.h"

// The measurements of `bench`.
namespace winnow::apps {

// What is measured: reading a prompt, generating, or one after the other, in caches that already
// hold `depth` tokens.
struct BenchTest {
  int64_t n_prompt = 0;  // tokens per sequence, like the other lengths
  int64_t n_generate = 0;
  int64_t depth = 0;
  int64_t n_sequences = 1;  // 0: as many as --memory-limit allows
  bool batched = false;     // run as a static batch, even a batch of one

  int64_t length() const { return depth + n_prompt + n_generate; }
  int64_t n_tokens() const { return n_sequences * (n_prompt + n_generate); }
  std::string Name() const;
};

// One repetition.
struct BenchSample {
  int64_t prefill_ns = 0;
  int64_t decode_ns = 0;
  int64_t longest_step_ns = 0;
  int64_t ns() const { return prefill_ns + decode_ns; }
};

// State of the caches at the end of a repetition.
struct BenchCaches {
  double kept = 0;    // entries per KV head, the mean over layers, heads and sequences
  int64_t bytes = 0;  // sum over all sequences
  int64_t bytes_with_lists = 0;
  int64_t bytes_full_f16 = 0;  // the same tokens, uncompressed
};

// Random tokens of the model's vocabulary, the same in every run.
std::vector<runtime::TokenId> RandomTokens(const runtime::Engine& engine, int64_t n);

// Runs tests on one session. The cache is filled to a test's depth once and truncated to it before
// each repetition. If the method evicts, and for batches, each repetition runs on copies instead.
class BenchRunner {
 public:
  BenchRunner(runtime::Session& session, const std::atomic<bool>& interrupted);

  // Returns the repetitions; fewer than wanted after an interrupt. Errors: those of the session.
  Result<std::vector<BenchSample>> Measure(const BenchTest& test, int64_t repetitions, bool warmup);

  const BenchCaches& caches() const { return caches_; }

 private:
  bool evicts() const { return session_.compression().method != nullptr; }
  // Appends the tokens that the session lacks to hold `depth`.
  Result<void> Fill(int64_t depth);
  Result<BenchSample> Once(const BenchTest& test);
  Result<BenchSample> BatchOnce(const BenchTest& test);
  std::vector<runtime::TokenId> RandomTokens(int64_t n);

  runtime::Session& session_;
  const std::atomic<bool>& interrupted_;
  int64_t vocabulary_;
  Rng rng_{1};
  BenchCaches caches_;
};

}  // namespace winnow::apps

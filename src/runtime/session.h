#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/cache.h"
#include "runtime/engine.h"

namespace winnow::runtime {

using tokenizer::TokenId;

struct SessionOptions {
  int64_t context = 0;  // tokens the cache can hold; 0: the model's context
  kernels::TensorType key_type = kernels::TensorType::kF16;
  kernels::TensorType value_type = kernels::TensorType::kF16;
  int64_t row_block = 512;  // tokens computed at a time inside a layer
};

// One sequence: a cache and the tokens it has seen. Not thread-safe; sessions of one engine take
// turns.
class Session {
 public:
  static Result<std::unique_ptr<Session>> Make(Engine& engine, const SessionOptions& options);
  ~Session();

  struct PrefillOptions {
    // All logits, in blocks of rows (perplexity); by default only the last token's are kept (see
    // logits()).
    std::function<void(int64_t first_row, std::span<const float> logits)> on_logits;
    int64_t logits_from = -1;  // first row given to on_logits; -1: the last one only
    std::function<bool(double done)> progress;  // false stops
  };
  // Appends tokens. Errors: no room (says how many fit), token out of range. Stopped by progress:
  // returns false and the session is as before the call.
  Result<bool> Prefill(std::span<const TokenId> tokens, const PrefillOptions& options);
  Result<bool> Prefill(std::span<const TokenId> tokens) {
    return Prefill(tokens, PrefillOptions{});
  }
  // Appends one token; logits() are then those of the next one.
  Result<void> Decode(TokenId token);

  std::span<const float> logits() const;    // [vocabulary] after the last token
  std::span<const TokenId> tokens() const;  // everything appended so far
  int64_t n_tokens() const;
  int64_t capacity() const;

  void Reset();                     // forget everything
  void Truncate(int64_t n_tokens);  // keep the first n tokens
  // Keeps the longest common prefix with `tokens` (at most all but the last) and returns its
  // length.
  int64_t KeepCommonPrefix(std::span<const TokenId> tokens);

  int64_t cache_bytes() const;       // live entries
  int64_t cache_bytes_full() const;  // what the same tokens would take without compression
  Engine& engine();
  const cache::Cache& cache() const;

 private:
  Session();
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::runtime

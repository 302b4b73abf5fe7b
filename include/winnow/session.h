#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/result.h"
#include "winnow/sampling.h"

namespace winnow {

using Token = int32_t;

// How keys or values are stored. The quantised ones need heads of a multiple of 32 dimensions.
enum class CacheType { kF32, kF16, kBF16, kQ8_0, kQ4_0 };

struct SessionOptions {
  int64_t context = 0;  // tokens the cache can hold; 0: the model's context
  CacheType keys = CacheType::kF16;
  CacheType values = CacheType::kF16;
};

struct GenerateOptions {
  int64_t max_tokens = -1;             // -1: until the model ends or the session is full
  std::vector<std::string> stop = {};  // generation ends before the first of these
  Sampling sampling = {};
  // Gets the text as it becomes final, whole characters only; returning false stops.
  std::function<bool(std::string_view text)> on_text = {};
};

enum class StopReason { kEndOfGeneration, kLimit, kStopString, kContext, kCancelled };

struct Generation {
  std::string text;           // without the stop string
  std::vector<Token> tokens;  // a token that ends generation included
  StopReason stop_reason = StopReason::kLimit;
  int64_t prompt_tokens = 0;
  double prefill_ms = 0;  // reading the prompt
  double decode_ms = 0;   // all tokens after the first
};

// One text and the model's cache of it.
class Session {
 public:
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  // Continues a prompt: the whole text so far. What the session already holds of it is not computed
  // again. Control tokens written in a string are understood; where that is not wanted, tokenize it
  // yourself. Errors: nothing to continue, longer than the context, a sampling value out of range.
  Result<Generation> Generate(std::string_view prompt, const GenerateOptions& options = {});
  Result<Generation> Generate(std::span<const Token> prompt, const GenerateOptions& options = {});

  // Reads tokens after those the session holds. Errors: no room, a token outside the vocabulary.
  Result<void> Append(std::span<const Token> tokens);
  // What the model expects next: [vocabulary_size], valid until the next call; empty before the
  // first Append.
  std::span<const float> logits() const;

  std::span<const Token> tokens() const;  // what the session holds
  int64_t capacity() const;               // tokens it can hold
  int64_t cache_bytes() const;
  void Truncate(int64_t n_tokens);  // keeps the first n; more than there are: all

 private:
  friend class Model;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow

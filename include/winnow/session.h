#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/cancellation.h"
#include "winnow/result.h"
#include "winnow/sampling.h"

namespace winnow {

using Token = int32_t;

// How keys or values are stored. The quantised ones need heads of a multiple of 32 dimensions.
enum class CacheType { kF32, kF16, kBF16, kQ8_0, kQ4_0 };

// How the cache is compressed. Methods that need a budget take exactly one of slots, share and
// bytes.
struct Compression {
  std::string method = {};    // METHOD or METHOD:PARAMETER=VALUE,... as in `winnow methods`; empty:
                              // nothing is evicted
  std::string decode = {};    // a second method that holds the budget while generating
  int64_t slots = 0;          // entries per KV head
  double share = 0;           // entries as a share of the prompt
  int64_t bytes = 0;          // of the whole cache, at any moment
  int64_t prefill_chunk = 0;  // tokens of a prompt taken at a time; 0: all of it
};

struct SessionOptions {
  int64_t context = 0;  // tokens the cache can hold; 0: the model's context
  CacheType keys = CacheType::kF16;
  CacheType values = CacheType::kF16;
  Compression compression = {};
};

struct GenerateOptions {
  int64_t max_tokens = -1;             // -1: until the model ends or the session is full
  std::vector<std::string> stop = {};  // generation ends before the first of these
  Sampling sampling = {};
  // Gets the text as it becomes final, whole characters only; returning false stops.
  std::function<bool(std::string_view text)> on_text = {};
  CancellationToken cancel = {};  // stops it from another thread, also while the prompt is read
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

  // The same session in memory of its own: several questions on one compressed document.
  // Error: memory refused.
  Result<Session> Fork() const;

  // Writes all there is to a file, which appears whole and takes the place of an older one only
  // then; Model::RestoreSession goes on from it. Error: the disk.
  Result<void> Save(const std::string& path) const;

  std::span<const Token> tokens() const;  // what the session was given
  int64_t capacity() const;               // tokens it can be given
  // Bytes of the cache: keys, values and the method's numbers; with the lists that say where
  // entries stand; keys and values of the same tokens in f16 without compression.
  int64_t cache_bytes() const;
  int64_t cache_bytes_with_lists() const;
  int64_t cache_bytes_full_f16() const;
  // Entries of a layer's cache, the mean over its KV heads. Error: the model has no such layer.
  Result<double> kept(int layer) const;
  // Keeps the first n; more than there are: all. What was evicted cannot come back: with a
  // compression method fewer than all means none.
  void Truncate(int64_t n_tokens);

 private:
  friend class Model;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/compression.h"
#include "winnow/result.h"
#include "winnow/sampling.h"

namespace winnow {

using Token = int32_t;

// Ends work from another thread: while a prompt is read within a part of a layer, later with the
// next token. Copies are the same token. A token without a state, as by default, cancels nothing.
// Thread-safe.
class CancellationToken {
 public:
  CancellationToken() = default;
  static CancellationToken Make() {
    CancellationToken token;
    token.flag_ = std::make_shared<std::atomic<bool>>(false);
    return token;
  }

  void Cancel() {
    if (flag_) flag_->store(true, std::memory_order_relaxed);
  }
  bool cancelled() const { return flag_ && flag_->load(std::memory_order_relaxed); }
  // For the library.
  const std::shared_ptr<std::atomic<bool>>& flag() const { return flag_; }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

// How keys or values are stored. The quantised ones need heads of a multiple of 32 dimensions.
enum class CacheType { kF32, kF16, kBF16, kQ8_0, kQ4_0 };

struct SessionOptions {
  int64_t context = 0;  // tokens the cache can hold; 0: the model's context
  CacheType keys = CacheType::kF16;
  CacheType values = CacheType::kF16;
  Compression compression = {};
};

struct TokenProbability {
  Token token = 0;
  float log_probability = 0;  // natural logarithm, by the model alone: before all of Sampling
};

// A token as it comes.
struct GeneratedToken {
  Token token = 0;
  std::string_view text = {};  // that became final with it, perhaps none; valid during the call
  // Where GenerateOptions::top_probabilities asks for them.
  float log_probability = 0;
  std::span<const TokenProbability> top = {};  // the likeliest first
};

struct GenerateOptions {
  int64_t max_tokens = -1;             // -1: until the model ends or the session is full
  std::vector<std::string> stop = {};  // generation ends before the first of these
  Sampling sampling = {};
  // Of a prompt that is a string: control tokens written in it become tokens. Only for text you
  // trust; otherwise it stays text.
  bool parse_special = false;
  // -1: no probabilities; k: of each token and of the k likeliest, at most the vocabulary.
  int top_probabilities = -1;
  // Share of what is to be read of the prompt, 0..1, several times a second.
  std::function<void(double done)> on_prefill = {};
  // Each token; returning false stops, and no function is called again. Text that is held back
  // until the end is on_text's alone.
  std::function<bool(const GeneratedToken& token)> on_token = {};
  // Gets the text as it becomes final, whole characters only; returning false stops.
  std::function<bool(std::string_view text)> on_text = {};
  CancellationToken cancel = {};  // stops it from another thread, also while the prompt is read
};

enum class StopReason { kEndOfGeneration, kLimit, kStopString, kContext, kCancelled };

struct Generation {
  std::string text;                      // without the stop string
  std::vector<Token> tokens;             // a token that ends generation included
  std::vector<float> log_probabilities;  // [tokens], where top_probabilities >= 0
  StopReason stop_reason = StopReason::kLimit;
  int64_t prompt_tokens = 0;
  double prefill_ms = 0;  // reading the prompt
  double decode_ms = 0;   // all tokens after the first
};

struct AppendOptions {
  std::function<void(double done)> on_progress = {};  // share of the tokens that was read, 0..1
  CancellationToken cancel = {};
};

// One text and the model's cache of it. Used by one thread at a time; sessions of one model take
// turns.
class Session {
 public:
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  // Continues a prompt: the whole text so far. What the session already holds of it is not computed
  // again. Errors: nothing to continue, longer than the context, a value out of range.
  Result<Generation> Generate(std::string_view prompt, const GenerateOptions& options = {});
  Result<Generation> Generate(std::span<const Token> prompt, const GenerateOptions& options = {});

  // Reads tokens after those the session holds. Errors: no room, a token outside the vocabulary;
  // kCancelled: the session holds what it held, without logits, or nothing where entries were
  // evicted.
  Result<void> Append(std::span<const Token> tokens, const AppendOptions& options = {});
  // The same, and says how likely each token was: [tokens] natural logarithms, each given all
  // tokens before it; of the first token of an empty session NaN. Errors: those of Append; a method
  // that computes only some tokens of a prompt; entries were evicted and there are no logits to
  // begin with.
  Result<std::vector<float>> Score(std::span<const Token> tokens,
                                   const AppendOptions& options = {});
  // What the model expects next: [vocabulary_size], valid until the next call; empty before the
  // first Append, and after Truncate or what was cancelled.
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
  // Which of tokens() a KV head has in its cache: ascending places. Merged entries stand where one
  // of them stood. Error: the model has no such layer or head.
  Result<std::vector<int64_t>> kept_positions(int layer, int kv_head) const;
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

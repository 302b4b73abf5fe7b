#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/compression.h"
#include "winnow/result.h"
#include "winnow/sampling.h"

namespace winnow {

namespace internal {
struct Access;
}

using Token = int32_t;

// Cancels work from another thread. A prompt being read stops within a part of one layer,
// generation stops with the next token. A handle: copies share the state. A default-constructed
// token has no state and cancels nothing. Thread-safe.
class CancellationToken {
 public:
  CancellationToken() = default;
  static CancellationToken Make() {
    CancellationToken token;
    token.flag_ = std::make_shared<std::atomic<bool>>(false);
    return token;
  }
  // Cancels when `flag` is set, for example by a signal handler. Requires: the flag outlives all
  // copies of the token.
  static CancellationToken From(std::atomic<bool>& flag) {
    CancellationToken token;
    token.flag_ = std::shared_ptr<std::atomic<bool>>(std::shared_ptr<void>(), &flag);
    return token;
  }

  void Cancel() {
    if (flag_) flag_->store(true, std::memory_order_relaxed);
  }
  bool cancelled() const { return flag_ && flag_->load(std::memory_order_relaxed); }
  // For the library only; null without a state.
  const std::shared_ptr<std::atomic<bool>>& flag() const { return flag_; }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

// How keys or values are stored. The quantized types require a head dimension that is a multiple of
// 32.
enum class CacheType { kF32, kF16, kBF16, kQ8_0, kQ4_0 };

struct SessionOptions {
  int64_t context = 0;  // tokens the cache can hold at once; 0: the model's context
  CacheType keys = CacheType::kF16;
  CacheType values = CacheType::kF16;
  Compression compression = {};
  int64_t micro_batch = 512;  // prompt tokens computed together inside a layer, >= 1
  // Applies a Hadamard transform to keys stored as q4_0 (and to the queries). It spreads large
  // components, which 4-bit keys would otherwise lose precision to.
  bool rotate_keys = true;
};

// Result of the search for Compression::quality. The divergence is estimated on text that the model
// wrote after the prompt with the full cache, and on parts of the prompt that it was asked to
// repeat. It holds for texts like these and is no guarantee.
struct QualityInfo {
  double share = 1;           // the budget as a share of the prompt's tokens; 1: nothing is evicted
  double kl = 0;              // estimate under this budget: mean KL divergence in nats per token
  double standard_error = 0;  // standard error of the mean
  double p99 = 0;             // 99th percentile of the KL divergence per token
  int64_t tokens = 0;         // number of tokens compared; 0 if nothing is evicted
  int tried = 0;              // number of budgets tried
};

// A session's configuration and the state of its method.
struct SessionInfo {
  std::string method = {};  // with parameters, such as "snapkv:window=16"; "full": evicts nothing
  int64_t budget = 0;       // entries per KV head; 0: none, or not known before the prompt
  // The method chooses its own size, but for at least one KV head the budget limited that size in
  // the last prompt.
  bool limited_by_budget = false;
  int64_t cache_tokens = 0;     // entries that a KV head can hold at once
  int64_t bytes_per_token = 0;  // keys and values of all layers
  bool rotated_keys = false;    // keys are stored after a Hadamard transform
  // Entries get new positions when others are evicted, so a text may be longer than the model was
  // trained for.
  bool reassigns_positions = false;
  // The method keeps what the end of the prompt attends to. The prompt should end with the
  // question.
  bool needs_question = false;
  // Session::Score can score all tokens of a prompt; false: the method computes only some of them.
  bool scores_prompts = true;
  // Share of the kept entries that generated tokens attended to, since the session was made or
  // restored. Set once a token was generated, and only for methods that select entries for
  // attention.
  std::optional<double> attended_share = {};
  // Of the last prompt whose budget was searched (Compression::quality).
  std::optional<QualityInfo> quality = {};
};

// The parts whose sum is Session::cache_bytes_with_lists.
struct CacheParts {
  int64_t key_bytes = 0;
  int64_t value_bytes = 0;
  int64_t method_bytes = 0;  // the method's state per entry, such as scores and biases
  int64_t list_bytes = 0;    // lists of the entries' slots and positions
};

struct TokenProbability {
  Token token = 0;
  float log_probability = 0;  // natural logarithm, from the model's logits before all of Sampling
};

// One generated token, for GenerateOptions::on_token.
struct GeneratedToken {
  Token token = 0;
  std::string_view text = {};  // text completed by this token, may be empty; valid during the call
  // Set if GenerateOptions::top_probabilities asks for them.
  float log_probability = 0;
  std::span<const TokenProbability> top = {};  // most likely first; valid during the call
};

// Session::Generate and Scheduler::Submit return kInvalid for a value out of range. Session calls
// the functions in the thread of Generate, a Scheduler calls them in its own.
struct GenerateOptions {
  int64_t max_tokens = -1;             // -1: until the model ends the text or the session is full
  std::vector<std::string> stop = {};  // generation ends before the first of these strings
  Sampling sampling = {};
  Sampler sampler = {};        // used instead of `sampling`; not with a Scheduler
  Constraint constraint = {};  // none: any text
  // For a prompt given as a string: parse control tokens written in it. Only for text you trust;
  // otherwise they stay text.
  bool parse_special = false;
  // -1: no probabilities. k >= 0: the log probability of each generated token and of the k most
  // likely tokens; at most the vocabulary size.
  int top_probabilities = -1;
  // Progress in the part of the prompt that must be computed, 0..1; called several times a second.
  std::function<void(double done)> on_prefill = {};
  // Called when the prompt is in the cache, before the first token.
  std::function<void()> on_prompt = {};
  // Called for each token. If it returns false, generation stops and no function is called again.
  // Text held back until generation ends goes to on_text only.
  std::function<bool(const GeneratedToken& token)> on_token = {};
  // Gets the text as it becomes final, in whole characters; returning false stops generation.
  std::function<bool(std::string_view text)> on_text = {};
  // Stops generation from another thread, also while the prompt is read. In that case a session
  // with a compression method becomes empty.
  CancellationToken cancel = {};
};

enum class StopReason { kEndOfGeneration, kLimit, kStopString, kContext, kCancelled };
// "eos", "limit", "stop_string", "context", "cancelled". Thread-safe.
std::string_view ToString(StopReason reason);

struct Generation {
  std::string text;                      // without the stop string
  std::vector<Token> tokens;             // includes the token that ended generation
  std::vector<float> log_probabilities;  // one per token, if top_probabilities >= 0
  StopReason stop_reason = StopReason::kLimit;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;   // tokens of the prompt that the session already held
  int64_t prefill_tokens = 0;  // tokens of the prompt computed; 0 if it was not read to its end
  int64_t decode_tokens = 0;   // tokens computed after the prompt: the last generated token is not
  double prefill_ms = 0;       // time to read the prompt
  double first_token_ms = 0;   // from the call to the first token
  double decode_ms = 0;        // time for all tokens after the first

  // 0 if nothing was computed.
  double prefill_tokens_per_second() const { return PerSecond(prefill_tokens, prefill_ms); }
  double decode_tokens_per_second() const { return PerSecond(decode_tokens, decode_ms); }

 private:
  static double PerSecond(int64_t n, double ms) {
    return ms > 0 ? 1000.0 * static_cast<double>(n) / ms : 0;
  }
};

struct AppendOptions {
  // Share of the tokens read, 0..1; called in the thread of Append.
  std::function<void(double done)> on_progress = {};
  CancellationToken cancel = {};
};

// Logits computed by Session::Score; valid during the call. Row i holds the logits that follow
// token first + i of the tokens given to Score.
struct LogitRows {
  int64_t first = 0;
  int64_t vocabulary = 0;              // Model::vocabulary_size
  std::span<const float> logits = {};  // [rows, vocabulary]
  // [rows]: natural logarithm of the probability of the token that follows each row. One fewer if
  // the block ends with the row of the last token, which nothing follows.
  std::span<const double> log_probabilities = {};

  // [vocabulary]. Requires: 0 <= i < rows.
  std::span<const float> Row(int64_t i) const {
    return logits.subspan(static_cast<size_t>(i * vocabulary), static_cast<size_t>(vocabulary));
  }
};

struct ScoreOptions {
  // The first token to score. The logits before it are not computed, which saves time with a long
  // prompt.
  int64_t first = 0;
  // The first n_prompt tokens are a prompt to the compression method; the others are decoded one by
  // one, as part of a response. -1: all. Without a method the value makes no difference.
  int64_t n_prompt = -1;
  // Gets the rows from the one that predicts token `first` on, in order, several at a time: the
  // full distributions, for statistics or files. Called in the thread of Score.
  std::function<void(const LogitRows& rows)> on_rows = {};
  std::function<void(double done)> on_progress = {};  // share of the tokens read, 0..1
  CancellationToken cancel = {};
};

// One text and the model's KV cache of it. Used by one thread at a time, and sessions of one model
// take turns: calls that compute return kBusy while a Scheduler has the model, or while another
// session reads a prompt (when called from its on_prefill or on_progress). An exception thrown by a
// function in the options propagates to the caller; the session then holds the same tokens as after
// a cancellation.
class Session {
 public:
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  // Continues `prompt`, which is the whole text so far; the prefix that the session already holds
  // is not computed again. Errors that leave the session unchanged: an empty prompt, one longer
  // than the context, a value out of range, no room, kBusy. Errors during generation: logits that
  // are not finite; a bias or constraint that allows no token.
  Result<Generation> Generate(std::string_view prompt, const GenerateOptions& options = {});
  Result<Generation> Generate(std::span<const Token> prompt, const GenerateOptions& options = {});

  // Reads tokens after those the session holds, as a prompt to the method. Errors: no room, a token
  // outside the vocabulary, kBusy; kCancelled: the session then holds what it held, without logits,
  // or nothing with a compression method.
  Result<void> Append(std::span<const Token> tokens, const AppendOptions& options = {});
  // Appends one token as part of a response, as Generate does. For programs that choose tokens from
  // logits() themselves. Errors: those of Append.
  Result<void> Decode(Token token);
  // Appends tokens and returns the natural logarithm of each token's probability given all tokens
  // before it, [tokens]. NaN: the tokens before options.first, and the first token of an empty
  // session. Errors: those of Append; first or n_prompt out of range; a method that computes only
  // some tokens of a prompt (SessionInfo::scores_prompts), unless options.first lies past the
  // prompt; a session without logits() that has a compression method. kCancelled after n_prompt
  // tokens: the session holds the tokens read so far; an error there, such as the memory limit, may
  // leave it empty.
  Result<std::vector<double>> Score(std::span<const Token> tokens,
                                    const ScoreOptions& options = {});
  // Logits of the next token: [vocabulary_size], valid until the next call. Empty before the first
  // Append, and after Truncate or a cancellation.
  std::span<const float> logits() const;

  // A deep copy, for example to ask several questions about one compressed document. Error: not
  // enough memory.
  Result<Session> Fork() const;

  // Writes the whole session to a file, for Model::RestoreSession. The file replaces an older one
  // only when it is complete. `notes` is any text, which ReadSessionNotes reads. Error: kFile.
  Result<void> Save(const std::string& path, std::string_view notes = {}) const;

  // All tokens the session was given; valid until the next call that changes it.
  std::span<const Token> tokens() const;
  int64_t capacity() const;                 // maximum number of tokens
  int64_t room() const;                     // number of tokens that can still be decoded
  Result<void> CheckRoom(int64_t n) const;  // error: why n more prompt tokens do not fit
  SessionInfo info() const;
  // The largest Compression::size with which capacity() is unlimited; 0: with this method it never
  // is.
  int64_t largest_streaming_budget() const;
  // Bytes of the cache: keys, values and the method's state; the same plus the lists of slots and
  // positions; and, for comparison, keys and values of all tokens() in f16 without compression.
  int64_t cache_bytes() const;
  int64_t cache_bytes_with_lists() const;
  int64_t cache_bytes_full_f16() const;
  CacheParts cache_parts() const;
  // Entries per KV head of a layer, the mean over its KV heads. Error: no such layer.
  Result<double> kept(int layer) const;
  std::vector<double> kept() const;  // for every layer, [Model::n_layers]
  // The indices in tokens() of the entries that a KV head holds, ascending. A merged entry has the
  // index of one of its sources. Error: no such layer or head.
  Result<std::vector<int64_t>> kept_positions(int layer, int kv_head) const;
  // Keeps the first n_tokens tokens; n_tokens is clamped to 0 .. tokens().size(). With a
  // compression method evicted entries cannot be restored: unless all tokens stay, the session
  // becomes empty.
  void Truncate(int64_t n_tokens);
  // Truncates to the longest common prefix with `text`, as Generate does with its prompt, and
  // returns its length. If `text` equals tokens() and logits() are valid, that is all of it;
  // otherwise at most all but its last token, which must be read for its logits.
  int64_t KeepCommonPrefix(std::span<const Token> text);

 private:
  friend class Model;
  friend struct internal::Access;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads the notes given to Session::Save; needs no model. Errors: the file cannot be read (kFile);
// is no session file, is damaged or of another version (kFormat). Thread-safe.
Result<std::string> ReadSessionNotes(const std::string& path);

}  // namespace winnow

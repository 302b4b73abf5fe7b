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
  // Cancels when `flag` is set, for example by a signal handler. Requires: the flag outlives the
  // token.
  static CancellationToken From(std::atomic<bool>& flag) {
    CancellationToken token;
    token.flag_ = std::shared_ptr<std::atomic<bool>>(std::shared_ptr<void>(), &flag);
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
  int64_t micro_batch = 512;  // tokens of a prompt computed at a time inside a layer
  // Keys stored as q4_0 go through a Hadamard transform first, which spreads large components.
  bool rotate_keys = true;
};

// What was found for Compression::quality. Estimated on what the model wrote after the prompt with
// the full cache, and on parts of the prompt that it was asked to repeat: for what is like these.
struct QualityInfo {
  double share = 1;           // of the prompt's tokens that the budget is; 1: everything stays
  double kl = 0;              // the estimate under this budget: mean KL divergence in nats
  double standard_error = 0;  // of the mean
  double p99 = 0;             // of the tokens that were compared
  int64_t tokens = 0;         // so many; 0 where everything stays
  int tried = 0;              // budgets
};

// What a session is made of, and how far its method has come.
struct SessionInfo {
  std::string method = {};  // as written, such as "snapkv:window=16"; "full": evicts nothing
  int64_t budget = 0;       // entries per KV head; 0: none, or not known before the prompt
  // The method finds its own size, and that of a KV head was cut to the budget in the last prompt.
  bool limited_by_budget = false;
  int64_t cache_tokens = 0;     // tokens whose entries the cache can hold at once
  int64_t bytes_per_token = 0;  // of keys and values, all layers
  bool rotated_keys = false;    // stored after a Hadamard transform
  // Entries get new positions when others are evicted: a text may be longer than the model was
  // trained for.
  bool reassigns_positions = false;
  // The method chooses by what the end of the prompt attends to, which should be the question.
  bool needs_question = false;
  // Session::Score has all tokens of a prompt; false: the method computes only some of them.
  bool scores_prompts = true;
  // Share of the kept entries that generated tokens attended to, since the session was made or
  // restored; only of methods that select some, once there are such tokens.
  std::optional<double> attended_share = {};
  // Of the last prompt for which a budget was searched (Compression::quality).
  std::optional<QualityInfo> quality = {};
};

// What Session::cache_bytes_with_lists is the sum of.
struct CacheParts {
  int64_t key_bytes = 0;
  int64_t value_bytes = 0;
  int64_t method_bytes = 0;  // what the method keeps with the entries, such as scores and biases
  int64_t list_bytes = 0;    // of the lists that say where entries stand
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
  std::span<const TokenProbability> top = {};  // the likeliest first; valid during the call
};

// What is out of range is an error of Session::Generate or Scheduler::Submit. Functions are called
// in the thread of Generate; by a Scheduler in its own.
struct GenerateOptions {
  int64_t max_tokens = -1;             // -1: until the model ends or the session is full
  std::vector<std::string> stop = {};  // generation ends before the first of these
  Sampling sampling = {};
  Sampler sampler = {};        // replaces `sampling`; not with a Scheduler
  Constraint constraint = {};  // none: anything may be generated
  // Of a prompt that is a string: control tokens written in it become tokens. Only for text you
  // trust; otherwise it stays text.
  bool parse_special = false;
  // -1: no probabilities; k: of each token and of the k likeliest, at most the vocabulary.
  int top_probabilities = -1;
  // Share of what is to be read of the prompt, 0..1, several times a second.
  std::function<void(double done)> on_prefill = {};
  // Once the prompt is in the cache, before the first token.
  std::function<void()> on_prompt = {};
  // Each token; returning false stops, and no function is called again. Text that is held back
  // until the end is on_text's alone.
  std::function<bool(const GeneratedToken& token)> on_token = {};
  // Gets the text as it becomes final, whole characters only; returning false stops.
  std::function<bool(std::string_view text)> on_text = {};
  // Stops it from another thread, also while the prompt is read: with a compression method the
  // session is then empty.
  CancellationToken cancel = {};
};

enum class StopReason { kEndOfGeneration, kLimit, kStopString, kContext, kCancelled };
// "eos", "limit", "stop_string", "context", "cancelled". Thread-safe.
std::string_view ToString(StopReason reason);

struct Generation {
  std::string text;                      // without the stop string
  std::vector<Token> tokens;             // a token that ends generation included
  std::vector<float> log_probabilities;  // [tokens], where top_probabilities >= 0
  StopReason stop_reason = StopReason::kLimit;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;   // of the prompt, which the session held already
  int64_t prefill_tokens = 0;  // of the prompt, computed; 0 where it was not read to its end
  int64_t decode_tokens = 0;   // computed after the prompt; the last generated token is not
  double prefill_ms = 0;       // reading the prompt
  double first_token_ms = 0;   // from the call to the first token
  double decode_ms = 0;        // all tokens after the first

  // 0 where nothing was computed.
  double prefill_tokens_per_second() const { return PerSecond(prefill_tokens, prefill_ms); }
  double decode_tokens_per_second() const { return PerSecond(decode_tokens, decode_ms); }

 private:
  static double PerSecond(int64_t n, double ms) {
    return ms > 0 ? 1000.0 * static_cast<double>(n) / ms : 0;
  }
};

struct AppendOptions {
  // Share of the tokens that was read, 0..1; called in the thread of Append.
  std::function<void(double done)> on_progress = {};
  CancellationToken cancel = {};
};

// Logits as Session::Score computes them; valid during the call. Row i stands after token first + i
// of those given to Score.
struct LogitRows {
  int64_t first = 0;
  int64_t vocabulary = 0;              // Model::vocabulary_size
  std::span<const float> logits = {};  // [rows, vocabulary]
  // [rows]: natural logarithms, of the token after each; one fewer with the last token's row, which
  // nothing follows.
  std::span<const double> log_probabilities = {};

  // [vocabulary]. Requires: 0 <= i < rows.
  std::span<const float> Row(int64_t i) const {
    return logits.subspan(static_cast<size_t>(i * vocabulary), static_cast<size_t>(vocabulary));
  }
};

struct ScoreOptions {
  // The first token that is scored. Where it is not 0 nothing is computed for those before it: of a
  // long prompt that saves time.
  int64_t first = 0;
  // Tokens that are a prompt to a compression method; those after them are read one by one, as part
  // of an answer. -1: all. Without a method it makes no difference.
  int64_t n_prompt = -1;
  // All rows from the one that tells of token `first` on, in order, some at a time: whole
  // distributions, for statistics and files of one's own. Called in the thread of Score.
  std::function<void(const LogitRows& rows)> on_rows = {};
  std::function<void(double done)> on_progress = {};  // share of the tokens that was read, 0..1
  CancellationToken cancel = {};
};

// One text and the model's cache of it. Used by one thread at a time; sessions of one model take
// turns: what computes is kBusy while a Scheduler has the model, or another session reads a prompt
// (in its on_prefill and on_progress). What a function in the options throws passes through; the
// session then holds the tokens that it holds when cancelled.
class Session {
 public:
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  // Continues a prompt: the whole text so far. What the session already holds of it is not computed
  // again. Errors: nothing to continue, longer than the context, a value out of range, no room: the
  // session holds what it held. Errors once tokens are chosen: a bias or constraint that leaves
  // none.
  Result<Generation> Generate(std::string_view prompt, const GenerateOptions& options = {});
  Result<Generation> Generate(std::span<const Token> prompt, const GenerateOptions& options = {});

  // Reads tokens after those the session holds. Errors: no room, a token outside the vocabulary;
  // kCancelled: the session holds what it held, without logits, or nothing with a compression
  // method.
  Result<void> Append(std::span<const Token> tokens, const AppendOptions& options = {});
  // Appends one token as part of an answer, as Generate does; Append's tokens are a prompt to the
  // method. For programs that choose tokens from logits() themselves. Errors: those of Append.
  Result<void> Decode(Token token);
  // As Append, and says how likely each token was: [tokens] natural logarithms, each given all
  // tokens before it. NaN: before options.first, and of the first token of an empty session.
  // Errors: those of Append; first or n_prompt out of range; a method that computes only some
  // tokens of a prompt (SessionInfo::scores_prompts), unless only its last one is asked for;
  // with a compression method, no logits to begin with. kCancelled after n_prompt: the session
  // holds the tokens that were read; an error there (memory) may leave it empty.
  Result<std::vector<double>> Score(std::span<const Token> tokens,
                                    const ScoreOptions& options = {});
  // What the model expects next: [vocabulary_size], valid until the next call; empty before the
  // first Append, and after Truncate or what was cancelled.
  std::span<const float> logits() const;

  // The same session in memory of its own: several questions on one compressed document.
  // Error: memory refused.
  Result<Session> Fork() const;

  // Writes all there is to a file, which appears whole and takes the place of an older one only
  // then; Model::RestoreSession goes on from it. ReadSessionNotes reads `notes`, any text. Error:
  // the disk.
  Result<void> Save(const std::string& path, std::string_view notes = {}) const;

  // What the session was given; valid until the next call that changes it.
  std::span<const Token> tokens() const;
  int64_t capacity() const;                 // tokens it can be given
  int64_t room() const;                     // tokens that can still be decoded
  Result<void> CheckRoom(int64_t n) const;  // error: why n more prompt tokens do not fit
  SessionInfo info() const;
  // The largest Compression::size with which capacity() is any number; 0: the method has none.
  int64_t largest_streaming_budget() const;
  // Bytes of the cache: keys, values and the method's numbers of the entries; the same with the
  // lists that say where entries stand; keys and values of all tokens() in f16 without compression.
  int64_t cache_bytes() const;
  int64_t cache_bytes_with_lists() const;
  int64_t cache_bytes_full_f16() const;
  CacheParts cache_parts() const;
  // Entries of a layer's cache, the mean over its KV heads. Error: the model has no such layer.
  Result<double> kept(int layer) const;
  std::vector<double> kept() const;  // the same, [Model::n_layers]
  // Which of tokens() a KV head has in its cache: ascending indices. Merged entries stand where one
  // of them stood. Error: the model has no such layer or head.
  Result<std::vector<int64_t>> kept_positions(int layer, int kv_head) const;
  // Keeps the first n tokens; more than there are: all; below 0: none. What was evicted cannot come
  // back: with a compression method fewer than all means none.
  void Truncate(int64_t n_tokens);
  // Keeps the longest common prefix with a text, as Generate does with its prompt, and returns its
  // length: all tokens where logits() stand after the last one, else all but the last at most.
  int64_t KeepCommonPrefix(std::span<const Token> text);

 private:
  friend class Model;
  friend struct internal::Access;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The notes that a session was saved with; needs no model. Errors: the file cannot be read (kFile),
// is no session file, is damaged or of another version (kFormat). Thread-safe.
Result<std::string> ReadSessionNotes(const std::string& path);

}  // namespace winnow

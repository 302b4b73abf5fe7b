#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/layer_pass.h"
#include "base/result.h"
#include "cache/cache.h"
#include "model/step.h"
#include "runtime/budget/compressor.h"
#include "runtime/budget/quality_search.h"
#include "runtime/engine.h"

namespace winnow::runtime {

using tokenizer::TokenId;

struct SessionInput;

struct SessionOptions {
  int64_t context = 0;  // tokens the cache can hold; 0: the model's context
  kernels::TensorType key_type = kernels::TensorType::kF16;
  kernels::TensorType value_type = kernels::TensorType::kF16;
  // Whether keys stored as Q4_0 go through a Hadamard transform first (CacheConfig::hadamard_keys).
  bool rotate_keys = true;
  int64_t row_block = 512;  // tokens computed at a time inside a layer
  CompressionOptions compression = {};
  // To record queries, keys and values (attention::Sequence).
  std::function<void(const attention::Projections& projections)> on_projections = {};
};

// The parts of Session::cache_bytes_with_lists.
struct CacheParts {
  int64_t key_bytes = 0;
  int64_t value_bytes = 0;
  int64_t method_bytes = 0;  // cache::Cache::state_bytes
  int64_t list_bytes = 0;
};

// One sequence: a cache and the tokens it has seen. Not thread-safe; sessions of one engine compute
// one after another, or together (batch.h, prefill.h).
//
// With a compression method, evicted entries cannot come back: Truncate and KeepCommonPrefix then
// clear the session unless all tokens stay, and a prefill that is stopped leaves it empty.
class Session {
 public:
  // Errors: a context out of range; those of CompressionOptions::Check and of the cache.
  static Result<std::unique_ptr<Session>> Make(Engine& engine, const SessionOptions& options);
  ~Session();

  struct PrefillOptions {
    // Receives logits in blocks of rows, for perplexity. Without it only the last token's are kept
    // (see logits()).
    std::function<void(int64_t first_row, std::span<const float> logits)> on_logits;
    int64_t logits_from = -1;  // first row given to on_logits; -1: the last one only
    std::function<bool(double done)> progress;  // false stops
  };
  // Appends tokens. They are read in chunks if CompressionOptions ask for it, or if under
  // memory_bytes the tokens before leave no room for more at a time. Errors: no room (says how many
  // fit), token out of range, the memory limit; the session is then as before. Stopped by progress:
  // returns false and the session is as before the call (see above).
  Result<bool> Prefill(std::span<const TokenId> tokens, const PrefillOptions& options);
  Result<bool> Prefill(std::span<const TokenId> tokens) {
    return Prefill(tokens, PrefillOptions{});
  }
  // Appends one token; logits() are then those of the next one.
  Result<void> Decode(TokenId token);

  std::span<const float> logits() const;    // [vocabulary] after the last token
  std::span<const TokenId> tokens() const;  // everything appended so far
  int64_t n_tokens() const;
  // Maximum length of the text: the context, or unlimited if positions are reassigned or capped and
  // entries are evicted in time (the budget leaves room for a call; with a share of the prompt or
  // bytes that is known once there is a prompt).
  int64_t capacity() const;
  // Maximum budget, in slots per KV head, with which capacity() is unlimited; 0: it never is with
  // this method.
  int64_t largest_streaming_budget() const;
  int64_t room() const;  // tokens that can still be decoded
  // Whether Prefill can append n more tokens; the error says why not.
  Result<void> CheckRoom(int64_t n) const;

  void Reset();                     // remove all tokens
  void Truncate(int64_t n_tokens);  // keep the first n tokens
  void InvalidateLogits();  // drop them, as Truncate does: the last token must be read again
  // Length of the longest common prefix with `tokens`: all of them if the last one's logits are
  // there, else at most all but the last.
  int64_t CommonPrefix(std::span<const TokenId> tokens) const;
  // Truncates to the common prefix and returns its length.
  int64_t KeepCommonPrefix(std::span<const TokenId> tokens);

  // How the budget was found for the last prompt that had it searched
  // (CompressionOptions::quality).
  const std::optional<QualityFound>& quality() const;

  // A deep copy, for example to ask several questions about one document. Error: out of memory.
  Result<std::unique_ptr<Session>> Fork() const;
  // A deep copy that evicts nothing more and generates with all the entries that are left. Error:
  // out of memory.
  Result<std::unique_ptr<Session>> ForkWithoutMethod() const { return CopyWithoutMethod({}); }

  // Maximum bytes of the cache for a prompt and the tokens generated after it. Error: as Prefill,
  // if the memory limit does not allow the prompt.
  Result<Reservation> Plan(int64_t n_prompt, int64_t n_generate) const;
  // The same, and builds with tests assert that the session stays within it.
  Result<Reservation> Reserve(int64_t n_prompt, int64_t n_generate);

  // Keys, values and the method's state of the live entries: what --kv-memory limits.
  int64_t cache_bytes() const;
  // The same plus the lists that say which slot holds which entry (cache::Cache::list_bytes).
  int64_t cache_bytes_with_lists() const;
  CacheParts cache_parts() const;
  // Keys and values of the same tokens in f16 without compression: what sizes are compared with.
  int64_t cache_bytes_full_f16() const;
  double kept(int layer) const;  // entries per KV head, the mean over the layer's heads
  int64_t budget() const;        // slots per KV head; 0: none (yet)
  // Whether the method chooses its own size, and the budget cut that of a KV head in the last
  // prompt or in its last part.
  bool limited_by_budget() const;
  // Share of the entries that attention used in the decode steps of this session. No value before
  // the first step, or if the method does not select entries (AttentionPolicy::top_p).
  std::optional<double> attended_share() const;
  const SessionOptions& options() const;
  const CompressionOptions& compression() const;
  Engine& engine() const;
  const cache::Cache& cache() const;

  // State of the compression, as a session file stores it (session_file.h).
  CompressionProgress progress() const;

 private:
  friend class Batch;
  friend class Prefill;
  friend class UndecidedPrompt;
  friend Result<void> RepeatEntries(Session& session, int64_t n);
  friend Result<std::unique_ptr<Session>> RestoreSession(Engine& engine,
                                                         const SessionOptions& options,
                                                         SessionInput input);
  // Restores the state of a saved session; `fill` writes its cache. Errors: that of fill, tokens
  // out of range, more bytes than the limit. Requires: nothing was read yet.
  Result<void> Restore(std::span<const TokenId> tokens, std::span<const float> logits,
                       const CompressionProgress& progress,
                       const std::function<Result<void>(cache::Cache&)>& fill);
  // As Prefill, for a prompt whose budget is searched. SearchBeforeDecision reads the prompt once,
  // SearchByReading anew for every budget.
  Result<bool> PrefillToQuality(std::span<const TokenId> tokens, const PrefillOptions& options);
  Result<bool> SearchBeforeDecision(std::span<const TokenId> tokens, const PrefillOptions& options);
  Result<bool> SearchByReading(std::span<const TokenId> tokens, const PrefillOptions& options);
  // For a session whose prompt was read up to the decision (Prefill::RunToDecision): a copy that
  // holds the prompt as if it had been read under this budget (slots per KV head). Errors: out of
  // memory, a broken invariant.
  Result<std::unique_ptr<Session>> ForkDecided(int64_t budget, std::span<const TokenId> prompt,
                                               const SessionOptions& options) const;
  // A deep copy with other options. Requires: they ask for the same kind of cache.
  Result<std::unique_ptr<Session>> ForkWith(const SessionOptions& options) const;
  // Takes the full cache, and frees it before it returns.
  Result<QualitySearch> BeginSearch(std::unique_ptr<Session> full,
                                    std::span<const TokenId> prompt) const;
  // A deep copy that evicts nothing more. `added` is appended to its text; its entries are in the
  // cache already. Error: out of memory.
  Result<std::unique_ptr<Session>> CopyWithoutMethod(std::span<const TokenId> added) const;
  // Decode in parts. PrepareStep makes all checks that can refuse the token and changes nothing
  // visible. The model runs between BeginStep and EndStep and ended with `done`. Error of EndStep:
  // that of the model, or a broken invariant.
  Result<void> PrepareStep(TokenId token);
  Result<void> CheckTokens(std::span<const TokenId> tokens) const;
  Result<void> CheckCapacity(int64_t n) const;
  model::TokenSpan BeginStep(std::span<const TokenId> token);
  Result<void> EndStep(std::span<const TokenId> token, Result<void> done);
  void AbandonStep();  // instead of EndStep, after an exception

  struct Data;
  explicit Session(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::runtime

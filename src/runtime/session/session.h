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

// What Session::cache_bytes_with_lists is the sum of.
struct CacheParts {
  int64_t key_bytes = 0;
  int64_t value_bytes = 0;
  int64_t method_bytes = 0;  // cache::Cache::state_bytes
  int64_t list_bytes = 0;
};

// One sequence: a cache and the tokens it has seen. Not thread-safe; sessions of one engine take
// turns, or go together (batch.h).
//
// With a compression method what was evicted cannot come back: Truncate and KeepCommonPrefix then
// forget everything unless all tokens stay, and a prefill that is stopped leaves the session empty.
class Session {
 public:
  // Errors: a context out of range; those of CompressionOptions::Check and of the cache.
  static Result<std::unique_ptr<Session>> Make(Engine& engine, const SessionOptions& options);
  ~Session();

  struct PrefillOptions {
    // All logits, in blocks of rows (perplexity); by default only the last token's are kept (see
    // logits()).
    std::function<void(int64_t first_row, std::span<const float> logits)> on_logits;
    int64_t logits_from = -1;  // first row given to on_logits; -1: the last one only
    std::function<bool(double done)> progress;  // false stops
  };
  // Appends tokens, in chunks where CompressionOptions ask for it, or where under memory_bytes the
  // tokens before leave no room for more at a time. Errors: no room (says how many fit), token out
  // of range, the memory limit; the session is then as before. Stopped by progress: returns false
  // and the session is as before the call (see above).
  Result<bool> Prefill(std::span<const TokenId> tokens, const PrefillOptions& options);
  Result<bool> Prefill(std::span<const TokenId> tokens) {
    return Prefill(tokens, PrefillOptions{});
  }
  // Appends one token; logits() are then those of the next one.
  Result<void> Decode(TokenId token);

  std::span<const float> logits() const;    // [vocabulary] after the last token
  std::span<const TokenId> tokens() const;  // everything appended so far
  int64_t n_tokens() const;
  // Maximum length of the text: the context, or unlimited where positions are reassigned and
  // entries are evicted in time (the budget leaves room for a call; with a share of the prompt or
  // bytes that is known once there is a prompt).
  int64_t capacity() const;
  // Slots per KV head up to which capacity() is any number; 0: this method's never is.
  int64_t largest_streaming_budget() const;
  int64_t room() const;  // tokens that can still be decoded
  // Whether Prefill can take in n tokens more; the error says why not.
  Result<void> CheckRoom(int64_t n) const;

  void Reset();                     // forget everything
  void Truncate(int64_t n_tokens);  // keep the first n tokens
  void InvalidateLogits();          // as after Truncate: the last token is read again for them
  // Length of the longest common prefix with `tokens`: all of them where the last one's logits are
  // there, else all but the last at most.
  int64_t CommonPrefix(std::span<const TokenId> tokens) const;
  // Keeps it, and returns how much that is.
  int64_t KeepCommonPrefix(std::span<const TokenId> tokens);

  // How the budget of the last prompt was found for which CompressionOptions::quality had it
  // searched.
  const std::optional<QualityFound>& quality() const;

  // A deep copy: several questions on one document. Error: memory refused.
  Result<std::unique_ptr<Session>> Fork() const;
  // One that evicts nothing more, and generates with all the entries that are left. Error: memory
  // refused.
  Result<std::unique_ptr<Session>> ForkWithoutMethod() const { return CopyWithoutMethod({}); }

  // What its cache takes at most for a prompt and the tokens generated after it. Error: as Prefill,
  // where the memory limit does not allow the prompt.
  Result<Reservation> Plan(int64_t n_prompt, int64_t n_generate) const;
  // The same, and builds with tests assert that the session stays within it.
  Result<Reservation> Reserve(int64_t n_prompt, int64_t n_generate);

  // Keys, values and the method's state of the live entries: what --kv-memory limits.
  int64_t cache_bytes() const;
  // The same and the lists that say where entries stand (cache::Cache::list_bytes).
  int64_t cache_bytes_with_lists() const;
  CacheParts cache_parts() const;
  // Keys and values of the same tokens in f16 without compression: what sizes are compared with.
  int64_t cache_bytes_full_f16() const;
  double kept(int layer) const;  // entries per KV head, the mean over the layer's heads
  int64_t budget() const;        // slots per KV head; 0: none (yet)
  // Whether the method finds its own size, and that of a KV head was cut to the budget in the last
  // prompt, or in its last part.
  bool limited_by_budget() const;
  // Share of the entries that attention used in tokens decoded here; nothing before the first, and
  // unless the method selects (AttentionPolicy::top_p).
  std::optional<double> attended_share() const;
  const SessionOptions& options() const;
  const CompressionOptions& compression() const;
  Engine& engine() const;
  const cache::Cache& cache() const;

  // How far compression is (session_file.h).
  CompressionProgress progress() const;

 private:
  friend class Batch;
  friend class Prefill;
  friend class UndecidedPrompt;
  friend Result<void> RepeatEntries(Session& session, int64_t n);
  friend Result<std::unique_ptr<Session>> RestoreSession(Engine& engine,
                                                         const SessionOptions& options,
                                                         SessionInput input);
  // Takes on what another session was; `fill` writes its cache. Error: that of fill, tokens out of
  // range, more bytes than the limit. Requires: nothing was read yet.
  Result<void> Restore(std::span<const TokenId> tokens, std::span<const float> logits,
                       const CompressionProgress& progress,
                       const std::function<Result<void>(cache::Cache&)>& fill);
  // As Prefill, of a prompt whose budget is searched. The second reads it anew for every budget.
  Result<bool> PrefillToQuality(std::span<const TokenId> tokens, const PrefillOptions& options);
  Result<bool> SearchBeforeDecision(std::span<const TokenId> tokens, const PrefillOptions& options);
  Result<bool> SearchByReading(std::span<const TokenId> tokens, const PrefillOptions& options);
  // Of a session whose prompt was read up to the decision (Prefill::RunToDecision): one that holds
  // the prompt as if it had been read under this budget, slots per KV head. Errors: memory refused,
  // a broken invariant.
  Result<std::unique_ptr<Session>> ForkDecided(int64_t budget, std::span<const TokenId> prompt,
                                               const SessionOptions& options) const;
  // The caches must be alike.
  Result<std::unique_ptr<Session>> ForkWith(const SessionOptions& options) const;
  // Takes the full cache, which is in nobody's way afterwards.
  Result<QualitySearch> BeginSearch(std::unique_ptr<Session> full,
                                    std::span<const TokenId> prompt) const;
  // A deep copy that evicts nothing more, and whose text goes on with `added`, which the cache
  // holds already. Error: memory refused.
  Result<std::unique_ptr<Session>> CopyWithoutMethod(std::span<const TokenId> added) const;
  // Decode in parts. What can be refused is refused by PrepareStep, which changes nothing anyone
  // sees; between BeginStep and EndStep runs the model, which ended with `done`. Error of EndStep:
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

#include "runtime/session/session.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "gguf/tensor_type.h"
#include "runtime/session/session_data.h"

namespace winnow::runtime {
Error ContextFull(int64_t n, int64_t n_taken, int64_t n_all) {
  const std::string text = std::to_string(n) + (n == 1 ? " token" : " tokens");
  const std::string context = "the context of " + std::to_string(n_all) + " tokens";
  if (n_taken == 0) {
    return Error{"session: a text of " + text + " does not fit " + context +
                 "; `context` gives it a larger one"};
  }
  const std::string left = n_taken == n_all
                               ? "it is full"
                               : "it has room for " + std::to_string(n_all - n_taken) +
                                     " after the " + std::to_string(n_taken) + " that it holds";
  return Error{"session: " + text + (n == 1 ? " more does not fit " : " more do not fit ") +
               context + ": " + left};
}

namespace {

// Methods count slots per KV head and divide budgets over the layers, so all layers must have the
// same query heads and KV heads.
Result<void> CheckLayers(const model::Hyperparameters& h, const CompressionOptions& compression) {
  if (!compression.method || h.has_equal_heads()) return {};
  const auto heads = [&](int i) {
    const model::LayerSpec& layer = h.layer(i);
    return std::to_string(layer.n_heads) + " query and " + std::to_string(layer.n_kv_heads) +
           " KV heads of " + std::to_string(layer.key_dim) + " and " +
           std::to_string(layer.value_dim) + " dimensions";
  };
  int other = 1;
  while (heads(other) == heads(0)) ++other;
  return Error{compression.method->traits().spec + ": layer 0 of the model has " + heads(0) +
               ", layer " + std::to_string(other) + " has " + heads(other) +
               "; methods need layers with the same heads: run this model without one"};
}

}  // namespace

Session::Session(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Make(Engine& engine, const SessionOptions& options) {
  const model::Model& model = engine.model();
  const int64_t context = options.context == 0 ? model.context() : options.context;
  if (context < 1 || context > model.context()) {
    return Error{"session: a context of " + std::to_string(options.context) +
                 " tokens is out of range 1.." + std::to_string(model.context())};
  }
  if (options.row_block < 1) {
    return Error{"session: row_block is " + std::to_string(options.row_block) +
                 ", expected at least 1"};
  }
  WINNOW_TRY(options.compression.Check());
  WINNOW_TRY(CheckLayers(model.hyperparameters(), options.compression));
  cache::CacheConfig config = {
      .shape = model.cache_shape(),
      .key_type = options.key_type,
      .value_type = options.value_type,
      .hadamard_keys = options.rotate_keys && options.key_type == kernels::TensorType::kQ4_0,
      .capacity = context};
  Compressor::Shape(options.compression,
                    {.n_q_heads = model.hyperparameters().layer(0).n_heads,
                     .trained_context = model.hyperparameters().trained_context},
                    config);
  const int64_t farthest = std::max(model.context(), model.hyperparameters().trained_context);
  if (config.storage.positions == cache::PositionMode::kCapped &&
      config.storage.distance_cap > farthest) {
    return Error{"session: distances up to " + std::to_string(config.storage.distance_cap) +
                 " are beyond the context of " + std::to_string(farthest) + " tokens"};
  }
  std::unique_ptr<Session> session(new Session(std::make_unique<Data>(engine, options)));
  Data& data = *session->data_;
  WINNOW_TRY(data.FindProfiles());
  WINNOW_ASSIGN(data.cache, cache::Cache::Make(engine.backend(), config));
  data.logits.resize(static_cast<size_t>(model.hyperparameters().vocabulary));
  return session;
}

Result<void> Session::Data::FindProfiles() {
  if (!evicts() || !options.compression.method->needs().error_profiles) return {};
  WINNOW_ASSIGN(const compression::ErrorProfiles* profiles, engine->error_profiles());
  compressor.SetProfiles(profiles);
  return {};
}

int64_t Session::Data::MaxHeld() const {
  const cache::CacheShape& shape = cache->config().shape;
  int64_t max = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    const int n_heads = shape.layer(layer).n_kv_heads;
    for (int head = 0; head < n_heads; ++head) {
      max = std::max(max, cache->n_slots(layer, head));
    }
  }
  return max;
}

void Session::Data::Clear() {
  cache->Clear();
  compressor.Reset();
  tokens.clear();
  has_logits = false;
  quality.reset();
  n_attended = 0;
  n_attendable = 0;
}

int64_t Session::Data::CallSize(int64_t n) const {
  const int64_t chunk = options.compression.prefill_chunk;
  return chunk == 0 ? n : std::min(chunk, n);
}

Result<void> Session::CheckRoom(int64_t n) const {
  if (n <= 0) return {};
  WINNOW_TRY(CheckCapacity(n));
  WINNOW_TRY(data_->compressor.CheckPrompt(*data_->cache, n, data_->CallSize(n)));
  return {};
}

Result<void> Session::CheckCapacity(int64_t n) const {
  const Data& data = *data_;
  if (n > capacity() - n_tokens()) return ContextFull(n, n_tokens(), capacity());
  const int64_t n_call = data.CallSize(n);
  const int64_t n_held = data.MaxHeld();
  if (n_call > data.cache->capacity() - n_held) {
    return Error{"session: " + std::to_string(n_call) + " tokens at once" +
                 (n_held > 0 ? " on top of " + std::to_string(n_held) + " entries" : "") +
                 " are more than the context of " + std::to_string(data.cache->capacity()) +
                 "; with `prefill_chunk` they are taken in parts"};
  }
  return {};
}

Result<std::unique_ptr<Session>> Session::Fork() const { return ForkWith(data_->options); }

Result<std::unique_ptr<Session>> Session::ForkWith(const SessionOptions& options) const {
  std::unique_ptr<Session> fork(new Session(std::make_unique<Data>(*data_->engine, options)));
  Data& data = *fork->data_;
  WINNOW_TRY(data.FindProfiles());
  WINNOW_ASSIGN(data.cache, data_->cache->Copy());
  data.compressor.ResumeFrom(data_->compressor.progress());
  data.tokens = data_->tokens;
  data.logits = data_->logits;
  data.has_logits = data_->has_logits;
  data.quality = data_->quality;
  data.n_attended = data_->n_attended;
  data.n_attendable = data_->n_attendable;
  return fork;
}

Result<std::unique_ptr<Session>> Session::ForkDecided(int64_t budget,
                                                      std::span<const TokenId> prompt,
                                                      const SessionOptions& options) const {
  WINNOW_ASSIGN(std::unique_ptr<Session> fork, ForkWith(options));
  Data& data = *fork->data_;
  data.compressor.ContinueCall(data_->compressor, *data.cache, budget);
  while (!data.compressor.DecideSome(*data.cache)) {
  }
  WINNOW_TRY(data.EndCall(prompt, compression::Phase::kPrefill));
  return fork;
}

CompressionProgress Session::progress() const { return data_->compressor.progress(); }

Result<void> Session::Restore(std::span<const TokenId> tokens, std::span<const float> logits,
                              const CompressionProgress& progress,
                              const std::function<Result<void>(cache::Cache&)>& fill) {
  WINNOW_CHECK(n_tokens() == 0);
  WINNOW_TRY(CheckTokens(tokens));
  WINNOW_TRY(fill(*data_->cache));
  const int64_t memory = data_->options.compression.memory_bytes;
  if (memory > 0 && data_->cache->live_bytes() > memory) {
    return Error{"its cache takes " + std::to_string(data_->cache->live_bytes()) +
                 " bytes, the limit is " + std::to_string(memory)};
  }
  WINNOW_TRY(data_->compressor.Restore(progress, *data_->cache));
  data_->tokens.assign(tokens.begin(), tokens.end());
  data_->has_logits = !logits.empty();
  std::ranges::copy(logits, data_->logits.begin());
  return {};
}

std::span<const float> Session::logits() const {
  return data_->has_logits ? std::span<const float>(data_->logits) : std::span<const float>();
}
std::span<const TokenId> Session::tokens() const { return data_->tokens; }
int64_t Session::n_tokens() const { return data_->n_tokens(); }

int64_t Session::capacity() const {
  if (!data_->compressor.Streams(*data_->cache)) return data_->cache->capacity();
  return std::numeric_limits<cache::Position>::max();
}

int64_t Session::largest_streaming_budget() const {
  return data_->compressor.LargestStreamingBudget(*data_->cache);
}

int64_t Session::room() const {
  // The first token fixes the budget, which the memory limit may not allow.
  if (n_tokens() == 0 && !data_->compressor.CheckPrompt(*data_->cache, 1, 1)) return 0;
  return std::min(capacity() - n_tokens(), data_->compressor.RemainingTokens(*data_->cache));
}

void Session::Reset() { data_->Clear(); }

void Session::Truncate(int64_t n_tokens) {
  WINNOW_CHECK(n_tokens >= 0);
  if (n_tokens >= data_->n_tokens()) return;
  if (data_->evicts()) {
    data_->Clear();
    return;
  }
  data_->cache->Truncate(static_cast<cache::Position>(n_tokens));
  data_->compressor.Truncate(n_tokens);
  data_->tokens.resize(static_cast<size_t>(n_tokens));
  data_->has_logits = false;
}

void Session::InvalidateLogits() { data_->has_logits = false; }

int64_t Session::CommonPrefix(std::span<const TokenId> tokens) const {
  // The caller needs the last token's logits: if they are there, the whole text can be kept.
  if (data_->has_logits && std::ranges::equal(tokens, data_->tokens)) return n_tokens();
  const std::span<const TokenId> reusable = tokens.first(tokens.empty() ? 0 : tokens.size() - 1);
  const auto end =
      std::mismatch(reusable.begin(), reusable.end(), data_->tokens.begin(), data_->tokens.end());
  return end.first - reusable.begin();
}

int64_t Session::KeepCommonPrefix(std::span<const TokenId> tokens) {
  Truncate(CommonPrefix(tokens));
  return n_tokens();
}

Result<Reservation> Session::Plan(int64_t n_prompt, int64_t n_generate) const {
  return data_->compressor.Plan(*data_->cache, n_prompt, data_->CallSize(n_prompt), n_generate);
}

Result<Reservation> Session::Reserve(int64_t n_prompt, int64_t n_generate) {
  WINNOW_ASSIGN(const Reservation reservation, Plan(n_prompt, n_generate));
  data_->compressor.Reserve(reservation, n_prompt + n_generate);
  return reservation;
}

int64_t Session::cache_bytes() const { return data_->cache->live_bytes(); }

double Session::kept(int layer) const {
  const int n_heads = data_->cache->config().shape.layer(layer).n_kv_heads;
  int64_t n_slots = 0;
  for (int head = 0; head < n_heads; ++head) n_slots += data_->cache->n_slots(layer, head);
  return static_cast<double>(n_slots) / n_heads;
}

const std::optional<QualityFound>& Session::quality() const { return data_->quality; }

int64_t Session::budget() const { return data_->compressor.budget(); }

bool Session::limited_by_budget() const {
  const CompressionProgress now = progress();
  if (!data_->evicts() || now.budget == 0 || now.budget >= now.n_prompt) return false;
  const compression::Traits& traits = compression().method->traits();
  if (traits.budget.needed || !traits.budget.held ||
      !traits.decisions.Evicts(compression::Phase::kPrefill))
    return false;
  const int64_t n_grown = traits.decisions.evicts_in_decode ? 0 : now.n_seen - now.n_prompt;
  const cache::Cache& held = *data_->cache;
  for (int layer = 0; layer < held.config().shape.n_layers; ++layer) {
    for (int head = 0; head < held.config().shape.layer(layer).n_kv_heads; ++head) {
      if (held.n_slots(layer, head) >= now.budget + n_grown) return true;
    }
  }
  return false;
}

std::optional<double> Session::attended_share() const {
  if (data_->n_attendable == 0) return std::nullopt;
  return static_cast<double>(data_->n_attended) / static_cast<double>(data_->n_attendable);
}

const SessionOptions& Session::options() const { return data_->options; }
const CompressionOptions& Session::compression() const { return data_->options.compression; }

int64_t Session::cache_bytes_with_lists() const {
  return data_->cache->live_bytes() + data_->cache->list_bytes();
}

CacheParts Session::cache_parts() const {
  const cache::Cache& cache = *data_->cache;
  const cache::CacheConfig& config = cache.config();
  CacheParts parts = {.method_bytes = cache.state_bytes(), .list_bytes = cache.list_bytes()};
  for (int i = 0; i < config.shape.n_layers; ++i) {
    const cache::LayerShape layer = config.shape.layer(i);
    for (int head = 0; head < layer.n_kv_heads; ++head) {
      parts.key_bytes += cache.n_rows(i, head) * gguf::RowBytes(config.key_type, layer.key_dim);
    }
  }
  parts.value_bytes = cache.live_bytes() - parts.key_bytes - parts.method_bytes;
  return parts;
}

int64_t Session::cache_bytes_full_f16() const {
  return n_tokens() * data_->engine->model().cache_shape().f16_bytes_per_token();
}

Engine& Session::engine() const { return *data_->engine; }
const cache::Cache& Session::cache() const { return *data_->cache; }

}  // namespace winnow::runtime

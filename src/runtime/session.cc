#include "runtime/session.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace winnow::runtime {
namespace {

// Tokens there is room for beyond those in use, so that decode steps rarely allocate.
constexpr size_t kTokensAhead = 1024;

}  // namespace

struct Session::Data {
  Engine* engine = nullptr;
  SessionOptions options;
  std::unique_ptr<cache::Cache> cache;
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [vocabulary]
  bool has_logits = false;    // of the last token

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }

  // Runs `added` through the model and remembers the last token's logits. False: stopped by
  // progress.
  Result<bool> Forward(std::span<const TokenId> added, const PrefillOptions& options);
  void KeepLogits(int64_t last_row, int64_t first_row, std::span<const float> block);
};

Session::Session() : data_(std::make_unique<Data>()) {}
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
  std::unique_ptr<Session> session(new Session());
  Data& data = *session->data_;
  data.engine = &engine;
  data.options = options;
  WINNOW_ASSIGN(data.cache, cache::Cache::Make(engine.backend(), {.shape = model.cache_shape(),
                                                                  .key_type = options.key_type,
                                                                  .value_type = options.value_type,
                                                                  .capacity = context}));
  data.logits.resize(static_cast<size_t>(model.hyperparameters().vocabulary));
  return session;
}

void Session::Data::KeepLogits(int64_t last_row, int64_t first_row, std::span<const float> block) {
  const size_t skipped = static_cast<size_t>(last_row - first_row) * logits.size();
  if (skipped >= block.size()) return;
  std::copy_n(block.begin() + static_cast<ptrdiff_t>(skipped), logits.size(), logits.begin());
  has_logits = true;
}

Result<bool> Session::Data::Forward(std::span<const TokenId> added, const PrefillOptions& wanted) {
  const int64_t n = static_cast<int64_t>(added.size());
  const int64_t n_free = cache->capacity() - n_tokens();
  if (n > n_free) {
    return Error{"session: " + std::to_string(n) + " tokens do not fit: " +
                 std::to_string(n_tokens()) + " of " + std::to_string(cache->capacity()) +
                 " are taken, " + std::to_string(n_free) + " more fit"};
  }
  const int64_t last_row = n - 1;
  const bool gives_rows = wanted.on_logits && wanted.logits_from >= 0;
  model::ForwardRequest request;
  request.tokens = added;
  request.first_position = static_cast<cache::Position>(n_tokens());
  request.cache = cache.get();
  request.row_block = options.row_block;
  request.progress = wanted.progress;
  request.logits_from = gives_rows ? std::min(wanted.logits_from, last_row) : last_row;
  // Captures fit the function's own storage, so that a decode step allocates nothing.
  struct Context {
    Data& data;
    const PrefillOptions& wanted;
    int64_t last_row;
  } context{*this, wanted, last_row};
  request.on_logits = [&context](int64_t first_row, std::span<const float> block) {
    context.data.KeepLogits(context.last_row, first_row, block);
    if (context.wanted.on_logits) context.wanted.on_logits(first_row, block);
  };

  auto outcome = engine->model().Forward(request);
  if (!outcome || outcome->stopped) {
    cache->Truncate(request.first_position);
    if (!outcome) return outcome.error();
    return false;
  }
  if (tokens.size() + added.size() > tokens.capacity()) {
    tokens.reserve(std::max(tokens.size() + added.size() + kTokensAhead, tokens.size() * 3 / 2));
  }
  tokens.insert(tokens.end(), added.begin(), added.end());
  return true;
}

Result<bool> Session::Prefill(std::span<const TokenId> tokens, const PrefillOptions& options) {
  if (tokens.empty()) return true;
  return data_->Forward(tokens, options);
}

Result<void> Session::Decode(TokenId token) {
  WINNOW_TRY(data_->Forward({&token, 1}, PrefillOptions{}));
  return {};
}

std::span<const float> Session::logits() const {
  return data_->has_logits ? std::span<const float>(data_->logits) : std::span<const float>();
}
std::span<const TokenId> Session::tokens() const { return data_->tokens; }
int64_t Session::n_tokens() const { return data_->n_tokens(); }
int64_t Session::capacity() const { return data_->cache->capacity(); }

void Session::Reset() { Truncate(0); }

void Session::Truncate(int64_t n_tokens) {
  WINNOW_CHECK(n_tokens >= 0);
  if (n_tokens >= data_->n_tokens()) return;
  data_->cache->Truncate(static_cast<cache::Position>(n_tokens));
  data_->tokens.resize(static_cast<size_t>(n_tokens));
  data_->has_logits = false;
}

int64_t Session::KeepCommonPrefix(std::span<const TokenId> tokens) {
  // The last token stays to be computed: its logits are what the caller is after.
  const std::span<const TokenId> reusable = tokens.first(tokens.empty() ? 0 : tokens.size() - 1);
  const auto end =
      std::mismatch(reusable.begin(), reusable.end(), data_->tokens.begin(), data_->tokens.end());
  const int64_t n = end.first - reusable.begin();
  Truncate(n);
  return n;
}

int64_t Session::cache_bytes() const { return data_->cache->live_bytes(); }

int64_t Session::cache_bytes_full() const {
  const cache::CacheShape& shape = data_->cache->config().shape;
  return n_tokens() * shape.n_layers * shape.n_kv_heads * data_->cache->bytes_per_slot();
}

Engine& Session::engine() { return *data_->engine; }
const cache::Cache& Session::cache() const { return *data_->cache; }

}  // namespace winnow::runtime

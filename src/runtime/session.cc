#include "runtime/session.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"

namespace winnow::runtime {
namespace {

// Tokens there is room for beyond those in use, so that decode steps rarely allocate.
constexpr size_t kTokensAhead = 1024;

Error NoRoom(int64_t n, int64_t n_taken, int64_t n_all) {
  return Error{"session: " + std::to_string(n) + (n == 1 ? " token does" : " tokens do") +
               " not fit: " + std::to_string(n_taken) + " of " + std::to_string(n_all) +
               " are taken, " + std::to_string(n_all - n_taken) + " more fit"};
}

}  // namespace

struct Session::Data {
  Data(Engine& e, const SessionOptions& o)
      : engine(&e),
        options(o),
        compressor(o.compression, e.model().hyperparameters().n_heads, e.model().rope(),
                   e.backend()) {}

  Engine* engine = nullptr;
  SessionOptions options;
  Compressor compressor;
  std::unique_ptr<cache::Cache> cache;
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [vocabulary]
  bool has_logits = false;    // of the last token
  int64_t n_attended = 0;     // by query heads while decoding with a selecting method
  int64_t n_attendable = 0;

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  bool evicts() const { return compressor.active(); }
  // Entries of the longest head.
  int64_t MostHeld() const;
  int64_t CallOf(int64_t n) const;

  // Runs `added` through the model and remembers the last token's logits; `shown` says where it
  // lies in the prompt. False: stopped by progress.
  struct Part {
    int64_t first = 0;
    int64_t n_prompt = 0;
  };
  Result<bool> Forward(std::span<const TokenId> added, compression::Phase phase, Part part,
                       const PrefillOptions& options);
  void KeepLogits(int64_t last_row, int64_t first_row, std::span<const float> block);
  // After a call of the model: its tokens are in the cache.
  void Advance(std::span<const TokenId> added);
  // After one that failed: as it was before, or empty where a method evicts.
  void TurnBack();
  // Whether single tokens attend to some entries only.
  bool selects() const { return evicts() && options.compression.method->traits().top_p < 1; }
  // A step was taken: counts the entries it could have attended to.
  void CountAttendable();
  void Forget();
};

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
  WINNOW_TRY(Compressor::Check(options.compression));
  cache::CacheConfig config = {.shape = model.cache_shape(),
                               .key_type = options.key_type,
                               .value_type = options.value_type,
                               .capacity = context};
  Compressor::Shape(options.compression, model.hyperparameters().trained_context, config);
  const int64_t farthest = std::max(model.context(), model.hyperparameters().trained_context);
  if (config.positions == cache::PositionMode::kCapped && config.distance_cap > farthest) {
    return Error{"session: distances up to " + std::to_string(config.distance_cap) +
                 " are beyond the context of " + std::to_string(farthest) + " tokens"};
  }
  std::unique_ptr<Session> session(new Session(std::make_unique<Data>(engine, options)));
  Data& data = *session->data_;
  WINNOW_ASSIGN(data.cache, cache::Cache::Make(engine.backend(), config));
  data.logits.resize(static_cast<size_t>(model.hyperparameters().vocabulary));
  return session;
}

void Session::Data::KeepLogits(int64_t last_row, int64_t first_row, std::span<const float> block) {
  const size_t skipped = static_cast<size_t>(last_row - first_row) * logits.size();
  if (skipped >= block.size()) return;
  std::copy_n(block.begin() + static_cast<ptrdiff_t>(skipped), logits.size(), logits.begin());
  has_logits = true;
}

Result<bool> Session::Data::Forward(std::span<const TokenId> added, compression::Phase phase,
                                    Part part, const PrefillOptions& wanted) {
  const auto n = static_cast<int64_t>(added.size());
  compressor.BeginCall(phase, n);
  cache->BeginCall(phase, n);
  const int64_t last_row = n - 1;
  const int64_t logits_from = wanted.logits_from - part.first;
  const bool gives_rows = wanted.on_logits && wanted.logits_from >= 0 && logits_from < n;
  model::ForwardRequest request;
  request.tokens = added;
  request.first_position = static_cast<cache::Position>(n_tokens());
  request.cache = cache.get();
  request.row_block = options.row_block;
  request.logits_from = gives_rows ? std::max<int64_t>(0, logits_from) : last_row;
  // Captures fit the function's own storage, so that a decode step allocates nothing.
  struct Context {
    Data& data;
    const PrefillOptions& wanted;
    const Part& part;
    int64_t n;
    bool gives_rows;
  } context{*this, wanted, part, n, gives_rows};
  if (wanted.progress) {
    request.progress = [&context](double done) {
      const double tokens_done =
          static_cast<double>(context.part.first) + done * static_cast<double>(context.n);
      return context.wanted.progress(tokens_done / static_cast<double>(context.part.n_prompt));
    };
  }
  request.on_logits = [&context](int64_t first_row, std::span<const float> block) {
    context.data.KeepLogits(context.n - 1, first_row, block);
    // Without wanted rows the caller gets the very last ones.
    const bool is_last = context.part.first + context.n == context.part.n_prompt;
    if (context.wanted.on_logits && (context.gives_rows || is_last)) {
      context.wanted.on_logits(context.part.first + first_row, block);
    }
  };
  if (options.on_projections) {
    request.on_projections = [&context](const model::Projections& projections) {
      context.data.options.on_projections(projections);
    };
  }
  if (compressor.active()) {
    request.taps = compressor.Taps();
    request.after_layer = [&context](int layer, const kernels::Taps& taps) -> Result<void> {
      context.data.compressor.AfterLayer(*context.data.cache, layer, taps);
      return {};
    };
    const compression::Traits& traits = options.compression.method->traits();
    if (traits.drops_hidden_states && phase == compression::Phase::kPrefill) {
      request.rows_kept = [&context](int) { return context.data.compressor.RowsKept(); };
    }
    if (phase == compression::Phase::kDecode && selects()) {
      request.top_p = traits.top_p;
      request.top_p_from = traits.dense_layers;
      request.n_attended = &n_attended;
    }
  }

  auto outcome = engine->model().Forward(request);
  if (!outcome || outcome->stopped) {
    TurnBack();
    if (!outcome) return outcome.error();
    return false;
  }
  compressor.EndCall(*cache);
  if (request.n_attended != nullptr) CountAttendable();
  Advance(added);
  return true;
}

int64_t Session::Data::MostHeld() const {
  const cache::CacheShape& shape = cache->config().shape;
  int64_t most = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      most = std::max(most, cache->n_slots(layer, head));
    }
  }
  return most;
}

void Session::Data::TurnBack() {
  if (evicts()) {
    Forget();
  } else {
    cache->Truncate(static_cast<cache::Position>(n_tokens()));
  }
}

void Session::Data::CountAttendable() {
  const int n_all = cache->config().shape.n_layers;
  const int n_layers = n_all - options.compression.method->traits().dense_layers;
  n_attendable += int64_t{std::max(0, n_layers)} * engine->model().hyperparameters().n_heads *
                  cache->n_slots(n_all - 1, 0);
}

void Session::Data::Advance(std::span<const TokenId> added) {
  if (tokens.size() + added.size() > tokens.capacity()) {
    tokens.reserve(std::max(tokens.size() + added.size() + kTokensAhead, tokens.size() * 3 / 2));
  }
  tokens.insert(tokens.end(), added.begin(), added.end());
}

void Session::Data::Forget() {
  cache->Clear();
  compressor.Reset();
  tokens.clear();
  has_logits = false;
  n_attended = 0;
  n_attendable = 0;
}

// Tokens of a prompt that are taken in at once.
int64_t Session::Data::CallOf(int64_t n) const {
  const int64_t chunk = options.compression.prefill_chunk;
  return chunk == 0 ? n : std::min(chunk, n);
}

Result<void> Session::CheckRoom(int64_t n) const {
  if (n == 0) return {};
  WINNOW_TRY(data_->compressor.CheckPrompt(*data_->cache, n, data_->CallOf(n)));
  return CheckCapacity(n);
}

Result<void> Session::CheckCapacity(int64_t n) const {
  const Data& data = *data_;
  if (n > capacity() - n_tokens()) return NoRoom(n, n_tokens(), capacity());
  const int64_t n_call = data.CallOf(n);
  const int64_t n_held = data.MostHeld();
  if (n_call > data.cache->capacity() - n_held) {
    return Error{"session: " + std::to_string(n_call) + " tokens at once" +
                 (n_held > 0 ? " on top of " + std::to_string(n_held) + " entries" : "") +
                 " are more than the context of " + std::to_string(data.cache->capacity()) +
                 "; with --prefill-chunk they are taken in parts"};
  }
  return {};
}

Result<bool> Session::Prefill(std::span<const TokenId> tokens, const PrefillOptions& options) {
  if (tokens.empty()) return true;
  Data& data = *data_;
  const auto n = static_cast<int64_t>(tokens.size());
  WINNOW_TRY(CheckCapacity(n));
  WINNOW_TRY(CheckTokens(tokens));
  WINNOW_ASSIGN(const int64_t n_call, data.compressor.BeginPrompt(*data.cache, n, data.CallOf(n)));
  for (int64_t first = 0; first < n; first += n_call) {
    const auto part = tokens.subspan(static_cast<size_t>(first),
                                     static_cast<size_t>(std::min(n_call, n - first)));
    WINNOW_ASSIGN(const bool finished,
                  data.Forward(part, compression::Phase::kPrefill, {first, n}, options));
    if (!finished) return false;
  }
  return true;
}

Result<void> Session::Repeat(int64_t n) {
  Data& data = *data_;
  WINNOW_CHECK(!data.evicts() && n <= n_tokens());
  WINNOW_TRY(CheckCapacity(n));
  const cache::CacheShape& shape = data.cache->config().shape;
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<cache::Position> positions(rows.size());
  std::iota(positions.begin(), positions.end(), static_cast<cache::Position>(n_tokens()));
  kernels::Backend& backend = data.engine->backend();
  // Rows of keys or values of all heads side by side.
  struct Copy {
    std::unique_ptr<kernels::Storage> storage;
    kernels::Matrix all;
    std::vector<float> of_head;
  };
  const auto make = [&](int dim) -> Result<Copy> {
    const int64_t cols = int64_t{dim} * shape.n_kv_heads;
    Copy copy;
    WINNOW_ASSIGN(copy.storage, backend.Allocate(n * cols * int64_t{sizeof(float)}));
    copy.all = {copy.storage.get(), 0, n, cols, cols};
    copy.of_head.resize(static_cast<size_t>(n * dim));
    return copy;
  };
  WINNOW_ASSIGN(Copy keys, make(shape.key_dim));
  WINNOW_ASSIGN(Copy values, make(shape.value_dim));
  const auto take = [&](const kernels::HeadRows& from, int head, Copy& to) {
    backend.ReadRows(from, rows, to.of_head);
    backend.Write(to.all.Cols(int64_t{head} * from.dim, from.dim), to.of_head);
  };
  data.cache->BeginCall(compression::Phase::kPrefill, n);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      take(data.cache->keys(layer, head), head, keys);
      take(data.cache->values(layer, head), head, values);
    }
    WINNOW_TRY(data.cache->Append(layer, keys.all, values.all, positions));
  }
  const std::vector<TokenId> repeated(data.tokens.begin(), data.tokens.begin() + n);
  data.Advance(repeated);
  data.has_logits = false;
  return {};
}

Result<void> Session::Decode(TokenId token) {
  WINNOW_TRY(PrepareStep(token));
  WINNOW_TRY(data_->Forward({&token, 1}, compression::Phase::kDecode, {0, 1}, PrefillOptions{}));
  return {};
}

Result<void> Session::PrepareStep(TokenId token) {
  Data& data = *data_;
  WINNOW_TRY(CheckTokens({&token, 1}));
  if (n_tokens() >= capacity()) return NoRoom(1, n_tokens(), capacity());
  // Where positions are reassigned, a text may be longer than the cache, which evicts in time.
  const int64_t n_held = data.MostHeld();
  if (n_held >= data.cache->capacity()) return NoRoom(1, n_held, data.cache->capacity());
  if (n_tokens() == 0) WINNOW_TRY(data.compressor.BeginPrompt(*data.cache, 1, 1));
  return data.compressor.CheckStep(*data.cache);
}

Result<void> Session::CheckTokens(std::span<const TokenId> tokens) const {
  const int64_t vocabulary = data_->engine->model().hyperparameters().vocabulary;
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return Error{"session: token " + std::to_string(token) + " is outside the vocabulary of " +
                 std::to_string(vocabulary)};
  }
  return {};
}

model::BatchRequest::Sequence Session::BeginStep(TokenId token) {
  Data& data = *data_;
  WINNOW_CHECK(!data.options.on_projections);
  data.compressor.BeginCall(compression::Phase::kDecode, 1);
  data.cache->BeginCall(compression::Phase::kDecode, 1);
  model::BatchRequest::Sequence step = {.token = token,
                                        .position = static_cast<cache::Position>(n_tokens()),
                                        .cache = data.cache.get(),
                                        .logits = data.logits,
                                        .taps = data.compressor.Taps()};
  if (data.selects()) {
    const compression::Traits& traits = data.options.compression.method->traits();
    step.top_p = traits.top_p;
    step.top_p_from = traits.dense_layers;
    step.n_attended = &data.n_attended;
  }
  return step;
}

void Session::AfterLayer(int layer, const kernels::Taps& taps) {
  data_->compressor.AfterLayer(*data_->cache, layer, taps);
}

void Session::EndStep(TokenId token) {
  data_->compressor.EndCall(*data_->cache);
  data_->has_logits = true;
  if (data_->selects()) data_->CountAttendable();
  data_->Advance({&token, 1});
}

void Session::AbandonStep() { data_->TurnBack(); }

Result<std::unique_ptr<Session>> Session::Fork() const {
  std::unique_ptr<Session> fork(
      new Session(std::make_unique<Data>(*data_->engine, data_->options)));
  Data& data = *fork->data_;
  WINNOW_ASSIGN(data.cache, data_->cache->Copy());
  data.compressor.GoOnFrom(data_->compressor.progress());
  data.tokens = data_->tokens;
  data.logits = data_->logits;
  data.has_logits = data_->has_logits;
  return fork;
}

Compressor::Progress Session::progress() const { return data_->compressor.progress(); }

Result<void> Session::Restore(std::span<const TokenId> tokens, std::span<const float> logits,
                              const Compressor::Progress& progress,
                              const std::function<Result<void>(cache::Cache&)>& fill) {
  WINNOW_CHECK(n_tokens() == 0);
  WINNOW_TRY(CheckTokens(tokens));
  WINNOW_TRY(fill(*data_->cache));
  const int64_t memory = data_->options.compression.memory_bytes;
  if (memory > 0 && data_->cache->live_bytes() > memory) {
    return Error{"its cache takes " + std::to_string(data_->cache->live_bytes()) +
                 " bytes, the limit is " + std::to_string(memory)};
  }
  data_->compressor.GoOnFrom(progress);
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
  // The first token settles the budget, which the memory limit may not allow.
  if (n_tokens() == 0 && !data_->compressor.CheckPrompt(*data_->cache, 1, 1)) return 0;
  return std::min(capacity() - n_tokens(), data_->compressor.Room(*data_->cache));
}

void Session::Reset() { data_->Forget(); }

void Session::Truncate(int64_t n_tokens) {
  WINNOW_CHECK(n_tokens >= 0);
  if (n_tokens >= data_->n_tokens()) return;
  if (data_->evicts()) {
    data_->Forget();
    return;
  }
  data_->cache->Truncate(static_cast<cache::Position>(n_tokens));
  data_->tokens.resize(static_cast<size_t>(n_tokens));
  data_->has_logits = false;
}

int64_t Session::KeepCommonPrefix(std::span<const TokenId> tokens) {
  // The caller is after the last token's logits: where they are there, nothing is left to do.
  if (data_->has_logits && std::ranges::equal(tokens, data_->tokens)) return n_tokens();
  const std::span<const TokenId> reusable = tokens.first(tokens.empty() ? 0 : tokens.size() - 1);
  const auto end =
      std::mismatch(reusable.begin(), reusable.end(), data_->tokens.begin(), data_->tokens.end());
  Truncate(end.first - reusable.begin());
  return n_tokens();
}

Result<Reservation> Session::Plan(int64_t n_prompt, int64_t n_generate) const {
  return data_->compressor.Plan(*data_->cache, n_prompt, data_->CallOf(n_prompt), n_generate);
}

Result<Reservation> Session::Reserve(int64_t n_prompt, int64_t n_generate) {
  WINNOW_ASSIGN(const Reservation reservation, Plan(n_prompt, n_generate));
  data_->compressor.Reserve(reservation, n_prompt + n_generate);
  return reservation;
}

int64_t Session::cache_bytes() const { return data_->cache->live_bytes(); }

double Session::kept(int layer) const {
  const int n_heads = data_->cache->config().shape.n_kv_heads;
  int64_t n_slots = 0;
  for (int head = 0; head < n_heads; ++head) n_slots += data_->cache->n_slots(layer, head);
  return static_cast<double>(n_slots) / n_heads;
}

int64_t Session::budget() const { return data_->compressor.budget(); }

double Session::attended_share() const {
  if (data_->n_attendable == 0) return 1;
  return static_cast<double>(data_->n_attended) / static_cast<double>(data_->n_attendable);
}

const CompressionOptions& Session::compression() const { return data_->options.compression; }

int64_t Session::cache_bytes_with_lists() const {
  return data_->cache->live_bytes() + data_->cache->list_bytes();
}

int64_t Session::cache_bytes_full_f16() const {
  constexpr int64_t kHalfBytes = 2;
  const cache::CacheShape& shape = data_->cache->config().shape;
  return n_tokens() * shape.n_layers * shape.n_kv_heads *
         (int64_t{shape.key_dim} + shape.value_dim) * kHalfBytes;
}

Engine& Session::engine() { return *data_->engine; }
const cache::Cache& Session::cache() const { return *data_->cache; }

}  // namespace winnow::runtime

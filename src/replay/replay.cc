#include "replay/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "attention/layer_pass.h"
#include "cache/cache.h"
#include "model/rope.h"
#include "report/safetensors.h"

namespace winnow::replay {
namespace {

using compression::Phase;
using kernels::Matrix;
using Kind = Recording::Kind;

// A matrix of the backend that is filled from host memory; its storage is reused.
class Buffer {
 public:
  Buffer(kernels::Backend& backend, int64_t cols) : backend_(backend), cols_(cols) {}

  // A matrix of n rows. Error: memory refused.
  Result<Matrix> Rows(int64_t n) {
    if (n > n_rows_) {
      WINNOW_ASSIGN(storage_, backend_.Allocate(n * cols_ * static_cast<int64_t>(sizeof(float))));
      n_rows_ = n;
    }
    return Matrix{
        .storage = storage_.get(), .offset = 0, .rows = n, .cols = cols_, .stride = cols_};
  }
  Result<Matrix> Take(const std::vector<float>& values) {
    WINNOW_ASSIGN(const Matrix matrix, Rows(static_cast<int64_t>(values.size()) / cols_));
    backend_.Write(matrix, values);
    return matrix;
  }

 private:
  kernels::Backend& backend_;
  int64_t cols_;
  int64_t n_rows_ = 0;
  std::unique_ptr<kernels::Storage> storage_;
};

// Keeps the listed rows of `values` [n, cols], in the order of the list.
void KeepRows(std::span<const cache::Position> rows, int64_t n, std::vector<float>& values) {
  const size_t cols = values.size() / static_cast<size_t>(n);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(values.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rows[i]) * cols), cols,
                values.begin() + static_cast<ptrdiff_t>(i * cols));
  }
  values.resize(rows.size() * cols);
}

class Player {
 public:
  Player(kernels::Backend& backend, Recording& recording, const ReplayOptions& options)
      : backend_(backend),
        recording_(recording),
        options_(options),
        method_(*options.compression.method),
        rope_(backend, recording.rope(), recording.n_tokens()),
        q_(backend, int64_t{recording.n_q_heads()} * recording.dim()),
        k_(backend, int64_t{recording.n_kv_heads()} * recording.dim()),
        v_(backend, int64_t{recording.n_kv_heads()} * recording.dim()),
        out_(backend, int64_t{recording.n_q_heads()} * recording.dim()),
        compressor_(options.compression, recording.n_q_heads(), backend, invariants_),
        pass_(backend,
              {.n_heads = recording.n_q_heads(),
               .key_dim = recording.dim(),
               .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(recording.dim())))}),
        outputs_(static_cast<size_t>(recording.n_layers())) {}

  // False: `progress` stopped it.
  Result<bool> Run() {
    WINNOW_TRY(Prepare());
    const int64_t n_prompt = recording_.n_prompt();
    const int64_t chunk = options_.compression.prefill_chunk;
    const int64_t n_call = chunk == 0 ? n_prompt : std::min(chunk, n_prompt);
    WINNOW_TRY(compressor_.BeginPrompt(*cache_, n_prompt, n_call));
    for (int64_t first = 0; first < n_prompt; first += n_call) {
      WINNOW_ASSIGN(const bool goes_on, Prefill(first, std::min(n_call, n_prompt - first)));
      if (!goes_on) return false;
    }
    const int n_layers = recording_.n_layers();
    const auto n_steps = static_cast<double>(recording_.n_tokens() - n_prompt);
    for (int64_t token = recording_.n_prompt(); token < recording_.n_tokens(); ++token) {
      const auto step = static_cast<double>(token - recording_.n_prompt());
      if (!Progressed(0.5 + 0.5 * step / n_steps)) return false;
      WINNOW_TRY(compressor_.CheckStep(*cache_));
      compressor_.BeginCall(Phase::kDecode, 1);
      cache_->BeginCall(Phase::kDecode, 1);
      const cache::Position row = 0;
      for (int layer = 0; layer < n_layers; ++layer) {
        WINNOW_TRY(Step(Phase::kDecode, layer, token, 1, {&row, 1}));
      }
    }
    return true;
  }

  Result<ReplaySummary> WriteResult(const std::string& path);

 private:
  Result<void> Prepare() {
    cache::CacheConfig config = {.shape = {.n_layers = recording_.n_layers(),
                                           .n_kv_heads = recording_.n_kv_heads(),
                                           .key_dim = recording_.dim(),
                                           .value_dim = recording_.dim()},
                                 .key_type = kernels::TensorType::kF32,
                                 .value_type = kernels::TensorType::kF32,
                                 .capacity = recording_.n_tokens()};
    WINNOW_TRY(options_.compression.Check());
    // A recording does not state the training context: take its whole length.
    runtime::Compressor::Shape(
        options_.compression,
        {.n_q_heads = recording_.n_q_heads(), .trained_context = recording_.n_tokens()}, config);
    WINNOW_ASSIGN(cache_, cache::Cache::Make(backend_, config));
    if (config.storage.positions != cache::PositionMode::kOriginal) {
      WINNOW_ASSIGN(rope_table_, rope_.Cover(recording_.n_tokens()));
    } else {
      rope_table_ = std::make_shared<const kernels::RopeTable>();  // keys come after RoPE
    }
    sequence_.cache = cache_.get();
    sequence_.after_layer = [this](const attention::LayerDone& done) -> Result<void> {
      return compressor_.AfterLayer(*cache_, done);
    };
    return {};
  }

  // The prompt counts as one half of the work, the decode steps as the other.
  bool Progressed(double done) const { return !options_.progress || options_.progress(done); }

  // Passes the tokens [first, first + n) of the prompt through all layers. False: `progress`
  // stopped it.
  Result<bool> Prefill(int64_t first, int64_t n) {
    std::vector<cache::Position> rows(static_cast<size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    compressor_.BeginCall(Phase::kPrefill, n);
    cache_->BeginCall(Phase::kPrefill, n);
    const int n_layers = recording_.n_layers();
    for (int layer = 0; layer < n_layers; ++layer) {
      const double done = static_cast<double>(first) + static_cast<double>(n) * layer / n_layers;
      if (!Progressed(0.5 * done / static_cast<double>(recording_.n_prompt()))) return false;
      WINNOW_TRY(Step(Phase::kPrefill, layer, first, n, rows));
      // Methods that drop hidden states: the rows that the next layers still compute.
      const std::span<const int32_t> kept = compressor_.RowsKept();
      if (kept.empty()) continue;
      for (size_t i = 0; i < kept.size(); ++i) rows[i] = rows[static_cast<size_t>(kept[i])];
      rows.resize(kept.size());
    }
    while (!compressor_.DecideSome(*cache_)) {
    }
    return true;
  }

  // Passes `rows` of the tokens [first, first + n) through one layer.
  Result<void> Step(Phase phase, int layer, int64_t first, int64_t n,
                    std::span<const cache::Position> rows) {
    const bool rotated = cache_->keys_rotated(layer);
    const auto read = [&](Kind kind, Buffer& buffer) -> Result<Matrix> {
      WINNOW_TRY(recording_.Read(kind, rotated, layer, first, n, host_));
      KeepRows(rows, n, host_);
      return buffer.Take(host_);
    };
    WINNOW_ASSIGN(const Matrix q, read(Kind::kQueries, q_));
    WINNOW_ASSIGN(const Matrix k, read(Kind::kKeys, k_));
    WINNOW_ASSIGN(const Matrix v, read(Kind::kValues, v_));
    WINNOW_ASSIGN(const Matrix out, out_.Rows(q.rows));
    positions_.assign(rows.begin(), rows.end());
    for (cache::Position& position : positions_) position += static_cast<cache::Position>(first);
    const int64_t n_together = cache_->RowsTogether(layer, positions_);
    if (n_together < q.rows) {
      return Error{method_.traits().spec + ": with capped distances only " +
                   std::to_string(n_together) + " of a chunk of " + std::to_string(q.rows) +
                   " tokens can be attended to together; use one prefill, or chunks of 1"};
    }
    compressor_.Ask(sequence_);
    const attention::LayerPass::Span span = {.sequence = &sequence_, .n_rows = q.rows};
    pass_.Start(layer, *rope_table_, {&span, 1});
    WINNOW_TRY(pass_.Run({.q = q, .k = k, .v = v, .out = out, .positions = positions_}));
    if (phase == Phase::kDecode) KeepOutput(layer, out);
    return {};
  }

  void KeepOutput(int layer, const Matrix& out) {
    host_.resize(static_cast<size_t>(out.cols));
    backend_.Read(out, host_);
    std::vector<float>& all = outputs_[static_cast<size_t>(layer)];
    all.insert(all.end(), host_.begin(), host_.end());
  }

  kernels::Backend& backend_;
  Recording& recording_;
  const ReplayOptions& options_;
  const compression::Method& method_;
  model::RopePositions rope_;
  Buffer q_, k_, v_, out_;
  std::unique_ptr<cache::Cache> cache_;
  runtime::Invariants invariants_{/*survives=*/false};
  runtime::Compressor compressor_;
  attention::LayerPass pass_;
  attention::Sequence sequence_;
  std::shared_ptr<const kernels::RopeTable> rope_table_;
  std::vector<float> host_;
  std::vector<cache::Position> positions_;
  std::vector<std::vector<float>> outputs_;  // [layer][step, head, dim]
};

Result<ReplaySummary> Player::WriteResult(const std::string& path) {
  using Writer = report::SafetensorsWriter;
  using Type = Writer::Type;
  const int64_t n_heads = cache_->config().shape.n_kv_heads;
  const int64_t dim = recording_.dim();
  const int64_t n_steps = recording_.n_tokens() - recording_.n_prompt();
  ReplaySummary summary = {.budget = compressor_.budget(), .kept = {}};
  std::vector<int64_t> max_slots(static_cast<size_t>(recording_.n_layers()), 0);
  std::vector<Writer::Tensor> tensors;
  for (int layer = 0; layer < recording_.n_layers(); ++layer) {
    int64_t sum = 0;
    int64_t& longest = max_slots[static_cast<size_t>(layer)];
    for (int head = 0; head < n_heads; ++head) {
      longest = std::max(longest, cache_->n_slots(layer, head));
      sum += cache_->n_slots(layer, head);
    }
    summary.kept.push_back(static_cast<double>(sum) / static_cast<double>(n_heads));
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    tensors.push_back({prefix + "kept", Type::kI32, {n_heads, longest}});
    tensors.push_back({prefix + "count", Type::kI32, {n_heads}});
    tensors.push_back({prefix + "k", Type::kF32, {n_heads, longest, dim}});
    tensors.push_back({prefix + "v", Type::kF32, {n_heads, longest, dim}});
    tensors.push_back({prefix + "out", Type::kF32, {recording_.n_q_heads(), n_steps, dim}});
  }
  WINNOW_ASSIGN(Writer writer,
                Writer::Create(path, tensors,
                               {{"method", method_.traits().spec},
                                {"n_prompt", std::to_string(recording_.n_prompt())}}));
  for (int layer = 0; layer < recording_.n_layers(); ++layer) {
    const auto longest = static_cast<size_t>(max_slots[static_cast<size_t>(layer)]);
    std::vector<int32_t> counts, kept;
    for (int head = 0; head < n_heads; ++head) {
      const auto order = cache_->order(layer, head);
      const auto positions = cache_->positions(layer, head);
      counts.push_back(static_cast<int32_t>(order.size()));
      for (const cache::Slot slot : order) kept.push_back(positions[static_cast<size_t>(slot)]);
      kept.resize((static_cast<size_t>(head) + 1) * longest, -1);
    }
    WINNOW_TRY(writer.Write(kept));
    WINNOW_TRY(writer.Write(counts));
    for (const bool keys : {true, false}) {
      for (int head = 0; head < n_heads; ++head) {
        const auto order = cache_->order(layer, head);
        // With shared rows a key is the stored row times the slot's factor.
        const auto rows = cache_->rows(layer, head);
        const auto factors = cache_->factors(layer, head);
        std::vector<int32_t> wanted;
        for (const cache::Slot slot : order) {
          wanted.push_back(rows.empty() ? slot : rows[static_cast<size_t>(slot)]);
        }
        host_.assign(longest * static_cast<size_t>(dim), 0);
        backend_.ReadRows(keys ? cache_->keys(layer, head) : cache_->values(layer, head), wanted,
                          std::span(host_).first(wanted.size() * static_cast<size_t>(dim)));
        for (size_t rank = 0; keys && !factors.empty() && rank < order.size(); ++rank) {
          const float factor = factors[static_cast<size_t>(order[rank])];
          for (size_t i = 0; i < static_cast<size_t>(dim); ++i) {
            host_[rank * static_cast<size_t>(dim) + i] *= factor;
          }
        }
        WINNOW_TRY(writer.Write(std::span<const float>(host_)));
      }
    }
    const std::vector<float>& steps = outputs_[static_cast<size_t>(layer)];
    const auto n_q_heads = static_cast<size_t>(recording_.n_q_heads());
    const auto width = static_cast<size_t>(dim);
    for (size_t head = 0; head < n_q_heads; ++head) {
      for (size_t step = 0; step < static_cast<size_t>(n_steps); ++step) {
        WINNOW_TRY(
            writer.Write(std::span(steps).subspan((step * n_q_heads + head) * width, width)));
      }
    }
  }
  WINNOW_TRY(writer.Finish());
  return summary;
}

}  // namespace

Result<ReplaySummary> Replay(kernels::Backend& backend, Recording& recording,
                             const std::string& out_path, const ReplayOptions& options) {
  Player player(backend, recording, options);
  WINNOW_ASSIGN(const bool finished, player.Run());
  if (!finished) return ReplaySummary{.stopped = true, .kept = {}};
  return player.WriteResult(out_path);
}

}  // namespace winnow::replay

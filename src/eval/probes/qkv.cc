#include "eval/probes/qkv.h"

#include <algorithm>
#include <map>
#include <utility>

#include "report/record.h"
#include "report/safetensors.h"

namespace winnow::eval {
namespace {

using report::SafetensorsWriter;

// The rows of one head, [token, dim], out of rows of all heads.
std::vector<float> ExtractHead(const std::vector<float>& rows, int n_heads, int dim, int head) {
  const size_t width = static_cast<size_t>(n_heads) * static_cast<size_t>(dim);
  std::vector<float> of_head;
  of_head.reserve(rows.size() / static_cast<size_t>(n_heads));
  for (size_t first = static_cast<size_t>(head * dim); first < rows.size(); first += width) {
    const auto begin = rows.begin() + static_cast<ptrdiff_t>(first);
    of_head.insert(of_head.end(), begin, begin + dim);
  }
  return of_head;
}

}  // namespace

QkvRecorder::QkvRecorder(runtime::Engine& engine, const Options& options)
    : engine_(engine),
      options_(options),
      shape_(engine.model().cache_shape()),
      layers_(static_cast<size_t>(shape_.n_layers)) {}

std::function<void(const attention::Projections&)> QkvRecorder::Hook() {
  return [this](const attention::Projections& projections) { Take(projections); };
}

void QkvRecorder::Append(const kernels::Matrix& matrix, std::vector<float>& rows) {
  const size_t n_before = rows.size();
  rows.resize(n_before + static_cast<size_t>(matrix.rows * matrix.cols));
  engine_.backend().Read(matrix, std::span(rows).subspan(n_before));
}

void QkvRecorder::Take(const attention::Projections& projections) {
  Layer& layer = layers_[static_cast<size_t>(projections.layer)];
  if (!projections.rotated) Append(projections.v, layer.v);  // the same in both calls
  if (projections.rotated ? !options_.after_rope : !options_.before_rope) return;
  Append(projections.k, projections.rotated ? layer.k : layer.k_pre);
  if (options_.queries) Append(projections.q, projections.rotated ? layer.q : layer.q_pre);
}

int64_t QkvRecorder::n_tokens() const {
  return static_cast<int64_t>(layers_[0].v.size()) / (shape_.n_kv_heads * shape_.value_dim);
}

std::vector<float> QkvRecorder::KeysBeforeRope(int layer, int kv_head) const {
  return ExtractHead(layers_[static_cast<size_t>(layer)].k_pre, shape_.n_kv_heads, shape_.key_dim,
                     kv_head);
}

std::vector<float> QkvRecorder::Values(int layer, int kv_head) const {
  return ExtractHead(layers_[static_cast<size_t>(layer)].v, shape_.n_kv_heads, shape_.value_dim,
                     kv_head);
}

void QkvRecorder::Clear() {
  for (Layer& layer : layers_) layer = {};
}

bool QkvRecorder::CanDescribeRope() const {
  const model::RopeParameters& rope = engine_.model().hyperparameters().layer(0).rope;
  return std::ranges::all_of(engine_.model().hyperparameters().layers,
                             [&](const auto& layer) { return layer.rope == rope; }) &&
         rope.scaling == model::RopeParameters::Scaling::kNone &&
         rope.n_rotated == shape_.key_dim && rope.frequency_factors.empty() &&
         rope.attention_factor == 1;
}

Result<void> QkvRecorder::Write(const std::string& path, int64_t n_prompt) const {
  using Type = SafetensorsWriter::Type;
  const int64_t n = n_tokens();
  const int n_q_heads = engine_.model().hyperparameters().layer(0).n_heads;
  const int dim = shape_.key_dim;
  if (shape_.value_dim != dim) {
    return Error{"keys of " + std::to_string(dim) + " and values of " +
                 std::to_string(shape_.value_dim) + " dimensions cannot be recorded together"};
  }
  struct Part {
    const char* name;
    std::vector<float> Layer::*rows;
    int n_heads;
  };
  std::vector<Part> parts = {{"q", &Layer::q, n_q_heads},
                             {"k", &Layer::k, shape_.n_kv_heads},
                             {"v", &Layer::v, shape_.n_kv_heads}};
  const model::RopeParameters& rope = engine_.model().hyperparameters().layer(0).rope;
  std::map<std::string, std::string> metadata = {{"n_prompt", std::to_string(n_prompt)}};
  if (CanDescribeRope()) {
    parts.push_back({"q_pre", &Layer::q_pre, n_q_heads});
    parts.push_back({"k_pre", &Layer::k_pre, shape_.n_kv_heads});
    metadata["rope_theta"] = report::ToJson(rope.base);
    metadata["rope_type"] = rope.interleaved ? "norm" : "neox";
  }
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (const Part& part : parts) {
      const auto n_values =
          static_cast<int64_t>((layers_[static_cast<size_t>(layer)].*part.rows).size());
      const std::string name = "layers." + std::to_string(layer) + "." + part.name;
      if (n_values != n * part.n_heads * dim) {
        return Error{name + ": " + std::to_string(n_values / (part.n_heads * dim)) +
                     " tokens were recorded, expected " + std::to_string(n) +
                     "; methods that drop hidden states or store keys before RoPE cannot be "
                     "recorded"};
      }
      tensors.push_back({name, Type::kF32, {part.n_heads, n, dim}});
    }
  }
  WINNOW_ASSIGN(SafetensorsWriter writer,
                SafetensorsWriter::Create(path, std::move(tensors), metadata));
  for (const Layer& layer : layers_) {
    for (const Part& part : parts) {
      for (int head = 0; head < part.n_heads; ++head) {
        const std::vector<float> rows = ExtractHead(layer.*part.rows, part.n_heads, dim, head);
        WINNOW_TRY(writer.Write(std::span<const float>(rows)));
      }
    }
  }
  return writer.Finish();
}

}  // namespace winnow::eval

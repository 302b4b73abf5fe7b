#include "replay/recording.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace winnow::replay {
namespace {

using Tensor = report::SafetensorsReader::Tensor;

// A cache indexes its slots with 32 bits; heads and dimensions are far smaller in any model.
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max() - 1;
constexpr int64_t kMaxHeads = 1 << 16;
constexpr int64_t kMaxDimensions = 1 << 16;

std::string TensorName(int layer, std::string_view tensor) {
  return "layers." + std::to_string(layer) + "." + std::string(tensor);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

template <class Number>
std::optional<Number> NumberIn(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

Result<Recording> Recording::Open(const std::string& path, bool before_rope) {
  WINNOW_ASSIGN(report::SafetensorsReader reader, report::SafetensorsReader::Open(path));
  Recording recording(std::move(reader));
  auto checked = recording.CheckTensors(before_rope);
  if (checked) checked = recording.ReadMetadata(before_rope);
  if (!checked) return Error{path + ": " + checked.error().message};
  return recording;
}

Result<void> Recording::CheckTensors(bool before_rope) {
  const Tensor* q = reader_.Find(TensorName(0, "q"));
  const Tensor* k = reader_.Find(TensorName(0, "k"));
  if (q == nullptr || k == nullptr) {
    return Error{"tensor " + TensorName(0, q == nullptr ? "q" : "k") +
                 " is missing: expected layers.0.q, layers.0.k, layers.0.v, layers.1.q, ..."};
  }
  for (const Tensor* tensor : {q, k}) {
    const auto fits = [&](size_t axis, int64_t max) {
      return tensor->shape[axis] >= 1 && tensor->shape[axis] <= max;
    };
    if (tensor->shape.size() != 3 || !fits(0, kMaxHeads) || !fits(1, kMaxTokens) ||
        !fits(2, kMaxDimensions)) {
      return Error{tensor->name + ": shape " + ShapeText(tensor->shape) +
                   ", expected [heads, tokens, dimensions]"};
    }
  }
  n_q_heads_ = static_cast<int>(q->shape[0]);
  n_kv_heads_ = static_cast<int>(k->shape[0]);
  n_tokens_ = q->shape[1];
  dim_ = static_cast<int>(q->shape[2]);
  if (n_q_heads_ % n_kv_heads_ != 0) {
    return Error{q->name + ": " + std::to_string(n_q_heads_) +
                 " heads, expected a multiple of the " + std::to_string(n_kv_heads_) + " of " +
                 k->name};
  }
  while (reader_.Find(TensorName(n_layers_, "q")) != nullptr) ++n_layers_;
  for (int layer = 0; layer < n_layers_; ++layer) {
    WINNOW_TRY(CheckTensor(TensorName(layer, "q"), n_q_heads_));
    WINNOW_TRY(CheckTensor(TensorName(layer, "k"), n_kv_heads_));
    WINNOW_TRY(CheckTensor(TensorName(layer, "v"), n_kv_heads_));
    if (!before_rope) continue;
    WINNOW_TRY(CheckTensor(TensorName(layer, "q_pre"), n_q_heads_));
    WINNOW_TRY(CheckTensor(TensorName(layer, "k_pre"), n_kv_heads_));
  }
  // A gap would silently drop the layers after it.
  for (const auto& [name, tensor] : reader_.tensors()) {
    if (!name.starts_with("layers.") || !name.ends_with(".q")) continue;
    const auto layer = NumberIn<int>(std::string_view(name).substr(7, name.size() - 9));
    if (layer && *layer >= n_layers_) {
      return Error{name + ": there is no " + TensorName(n_layers_, "q") + " before it"};
    }
  }
  return {};
}

Result<void> Recording::CheckTensor(const std::string& name, int n_heads) const {
  const Tensor* tensor = reader_.Find(name);
  if (tensor == nullptr) return Error{"tensor " + name + " is missing"};
  if (tensor->type != "F32") {
    return Error{name + ": element type " + tensor->type + ", expected F32"};
  }
  const std::vector<int64_t> expected = {n_heads, n_tokens_, dim_};
  if (tensor->shape != expected) {
    return Error{name + ": shape " + ShapeText(tensor->shape) + ", expected " +
                 ShapeText(expected)};
  }
  return {};
}

Result<void> Recording::ReadMetadata(bool before_rope) {
  const auto text = [&](const std::string& key) -> Result<std::string> {
    const auto found = reader_.metadata().find(key);
    if (found == reader_.metadata().end()) return Error{"metadata " + key + " is missing"};
    return found->second;
  };
  WINNOW_ASSIGN(const std::string prompt, text("n_prompt"));
  const auto n_prompt = NumberIn<int64_t>(prompt);
  if (!n_prompt || *n_prompt < 1 || *n_prompt > n_tokens_) {
    return Error{"metadata n_prompt: '" + prompt + "', expected 1 to " + std::to_string(n_tokens_)};
  }
  n_prompt_ = *n_prompt;
  if (!before_rope) return {};

  WINNOW_ASSIGN(const std::string theta, text("rope_theta"));
  const auto base = NumberIn<double>(theta);
  if (!base || !(*base > 0 && *base < 1e30)) {
    return Error{"metadata rope_theta: '" + theta + "', expected a number above 0"};
  }
  WINNOW_ASSIGN(const std::string type, text("rope_type"));
  if (type != "norm" && type != "neox") {
    return Error{"metadata rope_type: '" + type + "', expected norm or neox"};
  }
  if (dim_ % 2 != 0)
    return Error{"heads of " + std::to_string(dim_) + " dimensions, expected an even number"};
  rope_.interleaved = type == "norm";
  rope_.n_rotated = dim_;
  rope_.base = *base;
  rope_.original_context = n_tokens_;
  return {};
}

Result<void> Recording::Read(Kind kind, bool rotated, int layer, int64_t first, int64_t n,
                             std::vector<float>& out) {
  WINNOW_CHECK(layer >= 0 && layer < n_layers_ && first >= 0 && first + n <= n_tokens_);
  const char* name = kind == Kind::kValues    ? "v"
                     : kind == Kind::kQueries ? (rotated ? "q" : "q_pre")
                                              : (rotated ? "k" : "k_pre");
  const Tensor& tensor = *reader_.Find(TensorName(layer, name));
  const int64_t n_heads = kind == Kind::kQueries ? n_q_heads_ : n_kv_heads_;
  const auto dim = static_cast<size_t>(dim_);
  const size_t row_size = static_cast<size_t>(n_heads) * dim;
  out.resize(static_cast<size_t>(n) * row_size);
  head_.resize(static_cast<size_t>(n) * dim);
  for (int64_t head = 0; head < n_heads; ++head) {
    WINNOW_TRY(reader_.Read(tensor, (head * n_tokens_ + first) * dim_, head_));
    for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
      std::copy_n(head_.data() + row * dim, dim,
                  out.data() + row * row_size + static_cast<size_t>(head) * dim);
    }
  }
  return {};
}

}  // namespace winnow::replay

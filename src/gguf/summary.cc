#include "gguf/summary.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <variant>

#include "gguf/printable.h"
#include "gguf/value_reader.h"

namespace winnow::gguf {
namespace {

constexpr size_t kShownBytes = 60;
constexpr size_t kShownElements = 3;

std::string Show(uint64_t number) { return std::to_string(number); }
std::string Show(int64_t number) { return std::to_string(number); }
std::string Show(bool flag) { return flag ? "true" : "false"; }
std::string Show(std::string_view text) { return '"' + PrintableUtf8(text, kShownBytes) + '"'; }

std::string Show(double number) {
  std::array<char, 32> text;
  // Six digits: 1e-05 stored as f32 must not be shown as 9.99999975e-06.
  std::snprintf(text.data(), text.size(), "%.6g", number);
  return text.data();
}

template <typename T>
std::string ShowElements(const std::vector<T>& elements, Value::Type type) {
  std::string shown = "[" + std::to_string(elements.size()) + " x " + std::string(ToString(type));
  for (size_t i = 0; i < std::min(elements.size(), kShownElements); ++i) {
    shown += (i == 0 ? ": " : ", ") + Show(static_cast<T>(elements[i]));
  }
  return shown + (elements.size() > kShownElements ? ", ...]" : "]");
}

// The value of a string key, safe to print; empty if it is absent or not a string.
std::string MetadataText(const File& file, std::string_view key) {
  const auto text = file.String(key);
  return text && *text ? Printable(**text) : std::string();
}

// Sums of elements and bytes cannot overflow: every block of a tensor lies in the file.
void AddTo(std::vector<TypeShare>& types, const Tensor& tensor) {
  auto share = std::find_if(types.begin(), types.end(),
                            [&](const TypeShare& other) { return other.type == tensor.type; });
  if (share == types.end()) share = types.insert(types.end(), TypeShare{.type = tensor.type});
  ++share->n_tensors;
  share->n_elements += tensor.n_elements();
  share->bytes += static_cast<int64_t>(tensor.bytes.size());
}

}  // namespace

std::string Shorten(const Value& value) {
  if (const auto* array = std::get_if<Value::Array>(&value.data)) {
    return std::visit(
        [&](const auto& elements) { return ShowElements(elements, value.element_type); }, *array);
  }
  if (const auto* number = std::get_if<uint64_t>(&value.data)) return Show(*number);
  if (const auto* number = std::get_if<int64_t>(&value.data)) return Show(*number);
  if (const auto* number = std::get_if<double>(&value.data)) return Show(*number);
  if (const auto* flag = std::get_if<bool>(&value.data)) return Show(*flag);
  return Show(std::get<std::string_view>(value.data));
}

Summary Summarize(const File& file) {
  Summary summary;
  summary.version = file.version();
  summary.architecture = MetadataText(file, "general.architecture");
  summary.name = MetadataText(file, "general.name");
  summary.file_bytes = file.file_bytes();
  int64_t tensor_bytes = 0;
  for (const Tensor& tensor : file.tensors()) {
    const auto bytes = static_cast<int64_t>(tensor.bytes.size());
    summary.tensors.push_back(
        {.name = tensor.name,
         .type = tensor.type,
         .shape = {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
         .bytes = bytes});
    AddTo(summary.types, tensor);
    summary.n_parameters += tensor.n_elements();
    tensor_bytes += bytes;
  }
  if (summary.n_parameters > 0) {
    summary.bits_per_weight =
        8.0 * static_cast<double>(tensor_bytes) / static_cast<double>(summary.n_parameters);
  }
  std::sort(summary.types.begin(), summary.types.end(), [](const TypeShare& a, const TypeShare& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.type < b.type;
  });
  for (const auto& [key, value] : file.metadata()) {
    summary.metadata.emplace_back(Printable(key), Shorten(value));
  }
  return summary;
}

}  // namespace winnow::gguf

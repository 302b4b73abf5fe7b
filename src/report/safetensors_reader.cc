#include "report/safetensors_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"

namespace winnow::report {
namespace {

using HeaderJson = nlohmann::json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // same limit as the reference reader
constexpr int64_t kBytesPerValue = 4;             // F32 and I32, the types that can be read
// Numbers in a list of a tensor's entry; the parser drops anything deeper.
constexpr int kDeepest = 3;

struct TypeSize {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<TypeSize, 13> kTypes = {{{"BOOL", 1},
                                              {"U8", 1},
                                              {"I8", 1},
                                              {"F8_E4M3", 1},
                                              {"F8_E5M2", 1},
                                              {"I16", 2},
                                              {"U16", 2},
                                              {"F16", 2},
                                              {"BF16", 2},
                                              {"I32", 4},
                                              {"U32", 4},
                                              {"F32", 4},
                                              {"F64", 8}}};

// A list of non-negative integers.
std::optional<std::vector<int64_t>> Counts(const HeaderJson& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> counts;
  for (const HeaderJson& value : *found) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) return std::nullopt;
    counts.push_back(static_cast<int64_t>(value.get<uint64_t>()));
  }
  return counts;
}

// Parses a tensor's entry in the header; `data_bytes` follow the header. Errors: what is wrong.
Result<SafetensorsReader::Tensor> ParseTensor(const std::string& name, const HeaderJson& entry,
                                              int64_t data_bytes) {
  if (!entry.is_object()) return Error{"its entry is not an object"};
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string()) return Error{"it has no dtype"};
  const auto shape = Counts(entry, "shape");
  if (!shape) return Error{"it has no shape of whole numbers"};
  const auto offsets = Counts(entry, "data_offsets");
  if (!offsets || offsets->size() != 2) return Error{"it has no pair of data_offsets"};
  const int64_t begin = (*offsets)[0];
  const int64_t end = (*offsets)[1];
  if (begin > end || end > data_bytes) {
    return Error{"its data lies at " + std::to_string(begin) + ".." + std::to_string(end) +
                 ", the file has " + std::to_string(data_bytes) + " bytes of data"};
  }
  SafetensorsReader::Tensor tensor = {.name = name,
                                      .type = type->get<std::string>(),
                                      .shape = *shape,
                                      .n_values = 1,
                                      .begin_bytes = begin};
  bool too_large = false;
  for (const int64_t size : *shape) {
    too_large |= __builtin_mul_overflow(tensor.n_values, size, &tensor.n_values);
  }
  const auto known = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const TypeSize& t) { return t.name == tensor.type; });
  if (known == kTypes.end()) return tensor;  // cannot be read, but the caller need not read it
  int64_t bytes = 0;
  too_large |= __builtin_mul_overflow(tensor.n_values, known->bytes, &bytes);
  if (too_large || bytes != end - begin) {
    return Error{"its shape does not fit its " + std::to_string(end - begin) + " bytes of data"};
  }
  return tensor;
}

}  // namespace

Result<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  reader.file_.open(path, std::ios::binary | std::ios::ate);
  if (!reader.file_) return Error{path + ": cannot be opened"};
  reader.file_bytes_ = static_cast<int64_t>(reader.file_.tellg());
  if (const auto read = reader.ReadHeader(); !read) {
    return Error{path + ": " + read.error().message};
  }
  return reader;
}

Result<void> SafetensorsReader::ReadHeader() {
  uint64_t n_header = 0;
  constexpr int64_t kLengthBytes = sizeof(n_header);
  file_.seekg(0);
  file_.read(reinterpret_cast<char*>(&n_header), kLengthBytes);
  if (!file_ || n_header > static_cast<uint64_t>(kMaxHeaderBytes) ||
      static_cast<int64_t>(n_header) > file_bytes_ - kLengthBytes) {
    return Error{"not a safetensors file, or truncated"};
  }
  std::string text(n_header, '\0');
  file_.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file_) return Error{"cannot be read"};
  const int64_t data = kLengthBytes + static_cast<int64_t>(n_header);
  // The parser drops values nested deeper than a header allows instead of storing them.
  const HeaderJson header = HeaderJson::parse(
      text, [](int depth, HeaderJson::parse_event_t, HeaderJson&) { return depth <= kDeepest; },
      /*allow_exceptions=*/false);
  if (!header.is_object()) return Error{"its header is not a JSON object"};
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return Error{"its metadata is not a JSON object"};
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Error{"metadata " + key + ": expected a string"};
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    auto tensor = ParseTensor(name, entry, file_bytes_ - data);
    if (!tensor) return Error{name + ": " + tensor.error().message};
    tensor->begin_bytes += data;
    tensors_.emplace(name, *std::move(tensor));
  }
  return {};
}

const SafetensorsReader::Tensor* SafetensorsReader::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<void> SafetensorsReader::Read(const Tensor& tensor, int64_t first, std::span<float> out) {
  return ReadBytes(tensor, "F32", first, reinterpret_cast<char*>(out.data()),
                   static_cast<int64_t>(out.size()));
}

Result<void> SafetensorsReader::Read(const Tensor& tensor, int64_t first, std::span<int32_t> out) {
  return ReadBytes(tensor, "I32", first, reinterpret_cast<char*>(out.data()),
                   static_cast<int64_t>(out.size()));
}

Result<void> SafetensorsReader::ReadBytes(const Tensor& tensor, std::string_view type,
                                          int64_t first, char* out, int64_t n) {
  if (tensor.type != type) {
    return Error{path_ + ": " + tensor.name + ": element type " + tensor.type + ", expected " +
                 std::string(type)};
  }
  WINNOW_CHECK(first >= 0 && n >= 0 && first + n <= tensor.n_values);
  file_.seekg(tensor.begin_bytes + first * kBytesPerValue);
  file_.read(out, n * kBytesPerValue);
  if (!file_) return Error{path_ + ": " + tensor.name + ": cannot be read"};
  return {};
}

}  // namespace winnow::report

#include "gguf/testing/builder.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <type_traits>

#include "base/check.h"

namespace winnow::gguf::testing {
namespace {

using Blob = std::vector<std::byte>;

template <typename T>
void Put(Blob& bytes, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t end = bytes.size();
  bytes.resize(end + sizeof(T));
  std::memcpy(bytes.data() + end, &value, sizeof(T));
}

void PutString(Blob& bytes, std::string_view text) {
  Put(bytes, static_cast<uint64_t>(text.size()));
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

template <typename T>
Blob Scalar(T value) {
  Blob bytes;
  Put(bytes, value);
  return bytes;
}

template <typename T>
Blob Array(Value::Type type, const std::vector<T>& values) {
  Blob bytes;
  Put(bytes, static_cast<uint32_t>(type));
  Put(bytes, static_cast<uint64_t>(values.size()));
  for (const T& value : values) Put(bytes, value);
  return bytes;
}

uint32_t Id(Value::Type type) { return static_cast<uint32_t>(type); }

}  // namespace

Builder& Builder::Raw(std::string_view key, uint32_t value_type,
                      std::span<const std::byte> payload) {
  values_.push_back({std::string(key), value_type, Blob(payload.begin(), payload.end())});
  return *this;
}

Builder& Builder::Uint32(std::string_view key, uint32_t value) {
  return Raw(key, Id(Value::Type::kU32), Scalar(value));
}
Builder& Builder::Int32(std::string_view key, int32_t value) {
  return Raw(key, Id(Value::Type::kI32), Scalar(value));
}
Builder& Builder::Uint64(std::string_view key, uint64_t value) {
  return Raw(key, Id(Value::Type::kU64), Scalar(value));
}
Builder& Builder::Float32(std::string_view key, float value) {
  return Raw(key, Id(Value::Type::kF32), Scalar(value));
}

Builder& Builder::Bool(std::string_view key, bool value) {
  return Raw(key, Id(Value::Type::kBool), Scalar(static_cast<uint8_t>(value)));
}

Builder& Builder::String(std::string_view key, std::string_view value) {
  Blob payload;
  PutString(payload, value);
  return Raw(key, Id(Value::Type::kString), payload);
}

Builder& Builder::Strings(std::string_view key, const std::vector<std::string>& values) {
  Blob payload;
  Put(payload, Id(Value::Type::kString));
  Put(payload, static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) PutString(payload, value);
  return Raw(key, Id(Value::Type::kArray), payload);
}

Builder& Builder::Int32s(std::string_view key, const std::vector<int32_t>& values) {
  return Raw(key, Id(Value::Type::kArray), Array(Value::Type::kI32, values));
}

Builder& Builder::Uint32s(std::string_view key, const std::vector<uint32_t>& values) {
  return Raw(key, Id(Value::Type::kArray), Array(Value::Type::kU32, values));
}

Builder& Builder::Float32s(std::string_view key, const std::vector<float>& values) {
  return Raw(key, Id(Value::Type::kArray), Array(Value::Type::kF32, values));
}

Builder& Builder::Remove(std::string_view key) {
  std::erase_if(values_, [&](const KeyValue& value) { return value.key == key; });
  return *this;
}

Builder& Builder::Tensor(std::string_view name, TensorType type, const std::vector<int64_t>& shape,
                         std::span<const std::byte> bytes) {
  tensors_.push_back(
      {std::string(name), static_cast<uint32_t>(type), shape, Blob(bytes.begin(), bytes.end())});
  return *this;
}

Builder& Builder::TensorF32(std::string_view name, const std::vector<int64_t>& shape,
                            const std::vector<float>& values) {
  return Tensor(name, TensorType::kF32, shape, std::as_bytes(std::span(values)));
}

Builder& Builder::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [&](const NamedTensor& tensor) { return tensor.name == name; });
  return *this;
}

std::vector<std::byte> Builder::Bytes() const {
  const bool write_alignment = alignment != 32;
  std::vector<std::byte> out;
  Put(out, magic);
  Put(out, version);
  Put(out, static_cast<int64_t>(tensors_.size()) + extra_tensors);
  Put(out, static_cast<int64_t>(values_.size() + (write_alignment ? 1 : 0)) + extra_values);
  for (const KeyValue& value : values_) {
    PutString(out, value.key);
    Put(out, value.type);
    out.insert(out.end(), value.payload.begin(), value.payload.end());
  }
  if (write_alignment) {
    PutString(out, "general.alignment");
    Put(out, Id(Value::Type::kU32));
    Put(out, static_cast<uint32_t>(alignment));
  }
  // With an invalid alignment any padding will do: the parser rejects the file before it reads it.
  const uint64_t step = std::max<uint64_t>(alignment, 1);
  const auto padded = [step](uint64_t size) { return (size + step - 1) / step * step; };
  uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors_) {
    PutString(out, tensor.name);
    Put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) Put(out, size);
    Put(out, tensor.type);
    const bool last = &tensor == &tensors_.back();
    Put(out, offset + static_cast<uint64_t>(last ? offset_error : 0));
    offset += padded(tensor.bytes.size());
  }
  for (const NamedTensor& tensor : tensors_) {
    out.resize(padded(out.size()));
    out.insert(out.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  out.resize(padded(out.size()));
  out.resize(out.size() - static_cast<size_t>(truncate_bytes));
  return out;
}

void Builder::Write(const std::string& path) const {
  const std::vector<std::byte> bytes = Bytes();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  WINNOW_CHECK(file.good());
}

}  // namespace winnow::gguf::testing

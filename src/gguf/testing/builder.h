#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "gguf/tensor_type.h"

namespace winnow::gguf::testing {

// Writes GGUF files for tests and tools: valid by default, invalid where a test sets a field below.
class Builder {
 public:
  Builder& Uint32(std::string_view key, uint32_t value);
  Builder& Int32(std::string_view key, int32_t value);
  Builder& Uint64(std::string_view key, uint64_t value);
  Builder& Float32(std::string_view key, float value);
  Builder& Bool(std::string_view key, bool value);
  Builder& String(std::string_view key, std::string_view value);
  Builder& Strings(std::string_view key, const std::vector<std::string>& values);
  Builder& Int32s(std::string_view key, const std::vector<int32_t>& values);
  Builder& Uint32s(std::string_view key, const std::vector<uint32_t>& values);
  Builder& Float32s(std::string_view key, const std::vector<float>& values);
  // Value type and payload are written as given.
  Builder& Raw(std::string_view key, uint32_t value_type, std::span<const std::byte> payload);
  // Removes a key that was added before, to test a missing key.
  Builder& Remove(std::string_view key);

  // Shape in file order: shape[0] is the row length. The number of bytes must match type and shape.
  Builder& Tensor(std::string_view name, TensorType type, const std::vector<int64_t>& shape,
                  std::span<const std::byte> bytes);
  Builder& TensorF32(std::string_view name, const std::vector<int64_t>& shape,
                     const std::vector<float>& values);
  Builder& RemoveTensor(std::string_view name);

  // Fields a test can set to make the file invalid.
  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  int64_t extra_tensors = 0;   // added to the tensor count
  int64_t extra_values = 0;    // added to the metadata count
  uint64_t alignment = 32;     // of the data section; written as a key if not 32
  int64_t offset_error = 0;    // added to the last tensor's offset
  int64_t truncate_bytes = 0;  // cut from the end

  std::vector<std::byte> Bytes() const;
  // Requires: the path can be written.
  void Write(const std::string& path) const;

 private:
  struct KeyValue {
    std::string key;
    uint32_t type;
    std::vector<std::byte> payload;
  };
  struct NamedTensor {
    std::string name;
    uint32_t type;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::vector<KeyValue> values_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace winnow::gguf::testing

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace winnow::gguf {

// Element types of GGUF tensors; the values are the ids in the file. Types not listed here are
// rejected with their name (see NameOfTypeId).
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
};

// Layout of a type: `block_elements` adjacent elements of a row are stored in `block_bytes` bytes.
struct TypeInfo {
  TensorType type;
  std::string_view name;  // the usual spelling: "Q4_K"
  int block_elements;
  int block_bytes;
};

// Every supported type, by ascending file id.
std::span<const TypeInfo> SupportedTypes();

// Info of a supported type.
const TypeInfo& GetTypeInfo(TensorType type);

// The supported type with this file id, or nothing.
std::optional<TensorType> TensorTypeFromId(uint32_t id);

// Name of any id that has or had one, supported or not ("IQ2_XXS"); otherwise "unknown".
std::string_view NameOfTypeId(uint32_t id);

// Case-insensitive: "q8_0", "F16".
std::optional<TensorType> TensorTypeFromName(std::string_view name);

// Bytes of a row of `n` elements. Requires: n is a multiple of the type's block.
int64_t RowBytes(TensorType type, int64_t n);

}  // namespace winnow::gguf

#include "gguf/tensor_type.h"

#include <array>
#include <cctype>

#include "base/check.h"

namespace winnow::gguf {
namespace {

// Section 2 of the format: elements and bytes of a block.
constexpr std::array<TypeInfo, 15> kTypes = {{
    {TensorType::kF32, "F32", 1, 4},
    {TensorType::kF16, "F16", 1, 2},
    {TensorType::kQ4_0, "Q4_0", 32, 18},
    {TensorType::kQ4_1, "Q4_1", 32, 20},
    {TensorType::kQ5_0, "Q5_0", 32, 22},
    {TensorType::kQ5_1, "Q5_1", 32, 24},
    {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ2_K, "Q2_K", 256, 84},
    {TensorType::kQ3_K, "Q3_K", 256, 110},
    {TensorType::kQ4_K, "Q4_K", 256, 144},
    {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210},
    {TensorType::kIQ4_NL, "IQ4_NL", 32, 18},
    {TensorType::kIQ4_XS, "IQ4_XS", 256, 136},
    {TensorType::kBF16, "BF16", 1, 2},
}};

// Every id that has or had a meaning; empty: never assigned or not known here.
constexpr std::array<std::string_view, 43> kNames = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
    "Q2_0"};

}  // namespace

const TypeInfo& InfoOf(TensorType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  WINNOW_CHECK(!"a tensor type outside the table");
  return kTypes[0];
}

std::optional<TensorType> TensorTypeFromId(uint32_t id) {
  for (const TypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) return info.type;
  }
  return std::nullopt;
}

std::string_view NameOfTypeId(uint32_t id) { return id < kNames.size() ? kNames[id] : "unknown"; }

std::optional<TensorType> TensorTypeFromName(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name.size() != name.size()) continue;
    bool same = true;
    for (size_t i = 0; i < name.size(); ++i) {
      same = same && std::toupper(static_cast<unsigned char>(name[i])) == info.name[i];
    }
    if (same) return info.type;
  }
  return std::nullopt;
}

int64_t RowBytes(TensorType type, int64_t n) {
  const TypeInfo& info = InfoOf(type);
  WINNOW_CHECK(n % info.block_elements == 0);
  return n / info.block_elements * info.block_bytes;
}

}  // namespace winnow::gguf

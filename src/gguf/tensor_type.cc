#include "gguf/tensor_type.h"

#include <array>
#include <cctype>
#include <utility>

#include "base/check.h"

namespace winnow::gguf {
namespace {

constexpr std::array<TypeInfo, 15> kSupported = {{
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

// Ids that have, or once had, a name but are not supported. Removed ids (4, 5, 31-33, 36-38) are
// listed so that the error for an old file can name its type.
constexpr std::array<std::pair<uint32_t, std::string_view>, 28> kUnsupported = {{
    {4, "Q4_2"},    {5, "Q4_3"},        {9, "Q8_1"},        {15, "Q8_K"},       {16, "IQ2_XXS"},
    {17, "IQ2_XS"}, {18, "IQ3_XXS"},    {19, "IQ1_S"},      {21, "IQ3_S"},      {22, "IQ2_S"},
    {24, "I8"},     {25, "I16"},        {26, "I32"},        {27, "I64"},        {28, "F64"},
    {29, "IQ1_M"},  {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},
    {35, "TQ2_0"},  {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {39, "MXFP4"},
    {40, "NVFP4"},  {41, "Q1_0"},       {42, "Q2_0"},
}};

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

}  // namespace

std::span<const TypeInfo> SupportedTypes() { return kSupported; }

const TypeInfo& GetTypeInfo(TensorType type) {
  for (const TypeInfo& info : kSupported) {
    if (info.type == type) return info;
  }
  WINNOW_CHECK(!"a TensorType outside its enumerators");
  return kSupported[0];
}

std::optional<TensorType> TensorTypeFromId(uint32_t id) {
  for (const TypeInfo& info : kSupported) {
    if (static_cast<uint32_t>(info.type) == id) return info.type;
  }
  return std::nullopt;
}

std::string_view NameOfTypeId(uint32_t id) {
  if (const std::optional<TensorType> type = TensorTypeFromId(id)) return GetTypeInfo(*type).name;
  for (const auto& [unsupported_id, name] : kUnsupported) {
    if (unsupported_id == id) return name;
  }
  return "unknown";
}

std::optional<TensorType> TensorTypeFromName(std::string_view name) {
  for (const TypeInfo& info : kSupported) {
    if (EqualsIgnoringCase(info.name, name)) return info.type;
  }
  return std::nullopt;
}

int64_t RowBytes(TensorType type, int64_t n) {
  const TypeInfo& info = GetTypeInfo(type);
  WINNOW_CHECK(n >= 0 && n % info.block_elements == 0);
  return n / info.block_elements * info.block_bytes;
}

}  // namespace winnow::gguf

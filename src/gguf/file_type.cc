#include "gguf/file_type.h"

#include <cstdint>
#include <utility>

namespace winnow::gguf {

std::string_view FileTypeName(const File& file) {
  static constexpr std::pair<uint64_t, std::string_view> kNames[] = {
      {0, "F32"},     {1, "F16"},     {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},
      {8, "Q5_0"},    {9, "Q5_1"},    {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"},
      {13, "Q3_K_L"}, {14, "Q4_K_S"}, {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},
      {18, "Q6_K"},   {25, "IQ4_NL"}, {30, "IQ4_XS"}, {32, "BF16"}};
  const auto label = file.Uint("general.file_type");
  if (!label || !label->has_value()) return {};
  for (const auto& [id, name] : kNames) {
    if (id == **label) return name;
  }
  return {};
}

}  // namespace winnow::gguf

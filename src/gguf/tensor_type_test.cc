#include "gguf/tensor_type.h"

#include "gtest/gtest.h"

namespace winnow::gguf {
namespace {

TEST(TensorType, IdsNamesAndGeometryAgree) {
  for (const TypeInfo& info : SupportedTypes()) {
    EXPECT_EQ(TensorTypeFromId(static_cast<uint32_t>(info.type)), info.type);
    EXPECT_EQ(TensorTypeFromName(info.name), info.type);
    EXPECT_EQ(NameOfTypeId(static_cast<uint32_t>(info.type)), info.name);
    EXPECT_EQ(RowBytes(info.type, 3 * info.block_elements), 3 * info.block_bytes);
  }
  EXPECT_EQ(SupportedTypes().size(), 15u);
}

// Published bits per weight of each type.
TEST(TensorType, BitsPerWeight) {
  const auto bits = [](TensorType type) { return RowBytes(type, 256) * 8 / 256.0; };
  EXPECT_EQ(bits(TensorType::kBF16), 16);
  EXPECT_EQ(bits(TensorType::kQ4_0), 4.5);
  EXPECT_EQ(bits(TensorType::kQ5_1), 6);
  EXPECT_EQ(bits(TensorType::kQ8_0), 8.5);
  EXPECT_EQ(bits(TensorType::kQ2_K), 2.625);
  EXPECT_EQ(bits(TensorType::kQ3_K), 3.4375);
  EXPECT_EQ(bits(TensorType::kQ5_K), 5.5);
  EXPECT_EQ(bits(TensorType::kQ6_K), 6.5625);
  EXPECT_EQ(bits(TensorType::kIQ4_XS), 4.25);
}

TEST(TensorType, NamesAreFoundInAnyCase) {
  EXPECT_EQ(TensorTypeFromName("q4_k"), TensorType::kQ4_K);
  EXPECT_EQ(TensorTypeFromName("bf16"), TensorType::kBF16);
  EXPECT_EQ(TensorTypeFromName("Q4_K_M"), std::nullopt);
  EXPECT_EQ(TensorTypeFromName(""), std::nullopt);
}

TEST(TensorType, UnsupportedTypesHaveNamesOnly) {
  EXPECT_EQ(NameOfTypeId(16), "IQ2_XXS");
  EXPECT_EQ(NameOfTypeId(39), "MXFP4");
  EXPECT_EQ(NameOfTypeId(4), "Q4_2");
  EXPECT_EQ(NameOfTypeId(43), "unknown");
  EXPECT_EQ(TensorTypeFromId(16), std::nullopt);
  EXPECT_EQ(TensorTypeFromId(UINT32_MAX), std::nullopt);
}

}  // namespace
}  // namespace winnow::gguf

#include "gguf/summary.h"

#include <string>
#include <vector>

#include "gguf/testing/builder.h"
#include "gtest/gtest.h"

namespace winnow::gguf {
namespace {

using testing::Builder;

std::string Shown(const Builder& builder) {
  return Summarize(**File::Parse(builder.Bytes())).metadata.at(0).second;
}

TEST(Summary, AddsUpTensorsByType) {
  Builder builder;
  builder.String("general.architecture", "llama").String("general.name", "small\n");
  builder.TensorF32("norm", {32}, std::vector<float>(32))
      .Tensor("a", TensorType::kQ8_0, {32, 3}, std::vector<std::byte>(3 * 34))
      .Tensor("b", TensorType::kQ8_0, {64}, std::vector<std::byte>(2 * 34));
  const auto file = File::Parse(builder.Bytes()).value();
  const Summary summary = Summarize(*file);
  EXPECT_EQ(summary.version, 3u);
  EXPECT_EQ(summary.architecture, "llama");
  EXPECT_EQ(summary.name, "small\\x0a");
  EXPECT_EQ(summary.file_bytes, static_cast<int64_t>(builder.Bytes().size()));
  EXPECT_EQ(summary.n_parameters, 32 + 96 + 64);
  // (128 + 102 + 68) bytes for 192 elements.
  EXPECT_DOUBLE_EQ(summary.bits_per_weight, 298.0 * 8 / 192);
  ASSERT_EQ(summary.tensors.size(), 3u);
  EXPECT_EQ(
      summary.tensors[1],
      (TensorSummary{.name = "a", .type = TensorType::kQ8_0, .shape = {32, 3}, .bytes = 102}));
  const TypeShare q8 = {.type = TensorType::kQ8_0, .n_tensors = 2, .n_elements = 160, .bytes = 170};
  const TypeShare f32 = {.type = TensorType::kF32, .n_tensors = 1, .n_elements = 32, .bytes = 128};
  EXPECT_EQ(summary.types, (std::vector<TypeShare>{q8, f32}));
}

TEST(Summary, OfAFileWithoutAnything) {
  const Summary summary = Summarize(**File::Parse(Builder().Bytes()));
  Summary expected;
  expected.version = 3;
  expected.file_bytes = 32;  // the header of 24 bytes, padded
  EXPECT_EQ(summary, expected);
}

TEST(Summary, ShortensValues) {
  EXPECT_EQ(Shown(Builder().Uint64("k", UINT64_MAX)), "18446744073709551615");
  EXPECT_EQ(Shown(Builder().Int32("k", -3)), "-3");
  EXPECT_EQ(Shown(Builder().Float32("k", 1e-5f)), "1e-05");
  EXPECT_EQ(Shown(Builder().Bool("k", true)), "true");
  EXPECT_EQ(Shown(Builder().String("k", "a\x1b")), "\"a\\x1b\"");
  EXPECT_EQ(Shown(Builder().String("k", std::string(61, 'x'))),
            "\"" + std::string(60, 'x') + "...\"");
  EXPECT_EQ(Shown(Builder().Int32s("k", {1, -2})), "[2 x i32: 1, -2]");
  EXPECT_EQ(Shown(Builder().Float32s("k", {})), "[0 x f32]");
  EXPECT_EQ(Shown(Builder().Strings("k", {"a", "b", "", "d"})),
            "[4 x string: \"a\", \"b\", \"\", ...]");
}

}  // namespace
}  // namespace winnow::gguf

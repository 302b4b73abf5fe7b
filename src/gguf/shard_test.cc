// Every row of "what a parser must refuse" that the container itself can show.
#include "gguf/shard.h"

#include <cstring>
#include <functional>
#include <string>

#include "base/rng.h"
#include "gguf/testing/builder.h"
#include "gtest/gtest.h"

namespace winnow::gguf {
namespace {

using testing::Builder;

constexpr uint32_t kArrayType = 9;

template <typename... T>
std::vector<std::byte> Packed(T... values) {
  std::vector<std::byte> bytes;
  const auto put = [&](auto value) {
    const size_t end = bytes.size();
    bytes.resize(end + sizeof(value));
    std::memcpy(bytes.data() + end, &value, sizeof(value));
  };
  (put(values), ...);
  return bytes;
}

Builder Small() {
  Builder builder;
  builder.String("general.architecture", "llama")
      .Uint32("llama.block_count", 2)
      .Float32("llama.rope.freq_base", 1e4f)
      .Bool("flag", true)
      .Strings("names", {"one", "two", ""})
      .Int32s("numbers", {-1, 2, 3})
      .TensorF32("a.weight", {4, 2}, std::vector<float>(8, 1.5f))
      .Tensor("b.weight", TensorType::kQ8_0, {32, 3}, std::vector<std::byte>(3 * 34))
      .TensorF32("c.weight", {3}, {1, 2, 3});
  return builder;
}

std::string ErrorOf(const Builder& builder) {
  const auto parsed = ParseShard(builder.Bytes());
  return parsed ? "accepted" : parsed.error().message;
}

#define EXPECT_REFUSED(builder, words) \
  EXPECT_NE(ErrorOf(builder).find(words), std::string::npos) << ErrorOf(builder)

TEST(Container, ReadsWhatTheBuilderWrote) {
  const auto bytes = Small().Bytes();
  const auto parsed = ParseShard(bytes);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->version, 3u);
  ASSERT_EQ(parsed->metadata.size(), 6u);
  EXPECT_EQ(parsed->metadata[0].first, "general.architecture");
  EXPECT_EQ(std::get<std::string_view>(parsed->metadata[0].second.data), "llama");
  EXPECT_EQ(std::get<uint64_t>(parsed->metadata[1].second.data), 2u);
  const auto& names = std::get<std::vector<std::string_view>>(
      std::get<Value::Array>(parsed->metadata[4].second.data));
  EXPECT_EQ(names, (std::vector<std::string_view>{"one", "two", ""}));
  const auto& numbers =
      std::get<std::vector<int64_t>>(std::get<Value::Array>(parsed->metadata[5].second.data));
  EXPECT_EQ(numbers, (std::vector<int64_t>{-1, 2, 3}));
  ASSERT_EQ(parsed->tensors.size(), 3u);
  EXPECT_EQ(parsed->tensors[0].shape, (std::array<int64_t, 4>{4, 2, 1, 1}));
  EXPECT_EQ(parsed->tensors[1].bytes.size(), 102u);
  float last = 0;
  std::memcpy(&last, parsed->tensors[2].bytes.data() + 8, 4);
  EXPECT_EQ(last, 3.0f);
}

TEST(Container, OtherVersionsAndAlignments) {
  for (const uint64_t alignment : {1, 2, 8, 64, 4096}) {
    Builder builder = Small();
    builder.version = 2;
    builder.alignment = alignment;
    EXPECT_EQ(ErrorOf(builder), "accepted") << alignment;
  }
}

TEST(Container, RefusesWrongHeaders) {
  Builder builder = Small();
  builder.magic = 0x46554748;
  EXPECT_REFUSED(builder, "not a GGUF file: it starts with \"HGUF\"");
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    builder = Small();
    builder.version = version;
    EXPECT_REFUSED(builder, "expected 2 or 3");
  }
  builder = Small();
  builder.version = 0x03000000u;
  EXPECT_REFUSED(builder, "big-endian");
}

TEST(Container, RefusesCountsTheFileCannotHold) {
  for (const int64_t extra : {int64_t{-4}, int64_t{1000}, int64_t{1} << 40, INT64_MAX - 10}) {
    Builder builder = Small();
    builder.extra_tensors = extra;
    EXPECT_REFUSED(builder, "tensor count is");
    builder = Small();
    builder.extra_values = extra - 4;
    EXPECT_REFUSED(builder, "metadata count is");
  }
}

TEST(Container, RefusesTruncationAtEveryByte) {
  const auto bytes = Small().Bytes();
  // The last tensor ends 32 - 12 padding bytes before the end of the file; those may be missing.
  const size_t needed = bytes.size() - 20;
  for (size_t size = 0; size < needed; ++size) {
    const auto parsed = ParseShard(std::span(bytes).first(size));
    ASSERT_FALSE(parsed) << size;
    ASSERT_FALSE(parsed.error().message.empty());
  }
  EXPECT_TRUE(ParseShard(std::span(bytes).first(needed)));
}

TEST(Container, RefusesImpossibleStringsAndArrays) {
  for (const uint64_t length :
       {uint64_t{1} << 20, uint64_t{1} << 31, uint64_t{1} << 63, UINT64_MAX}) {
    Builder string;
    string.Raw("text", 8, Packed(length));
    EXPECT_NE(ErrorOf(string), "accepted") << length;
    EXPECT_REFUSED(string, "text");
    for (const uint32_t element : {0u, 2u, 4u, 6u, 8u, 10u, 12u}) {
      Builder array;
      array.Raw("list", kArrayType, Packed(element, length));
      EXPECT_REFUSED(array, "list");
    }
  }
  Builder nested;
  nested.Raw("deep", kArrayType, Packed(kArrayType, uint64_t{1}, uint32_t{4}, uint64_t{0}));
  EXPECT_REFUSED(nested, "deep: nested arrays");
  Builder unknown;
  unknown.Raw("odd", 13, Packed(uint32_t{0}));
  EXPECT_REFUSED(unknown, "odd: value type 13 unknown");
  Builder element;
  element.Raw("odd", kArrayType, Packed(uint32_t{77}, uint64_t{0}));
  EXPECT_REFUSED(element, "odd: value type 77 unknown");
}

TEST(Container, RefusesBadNames) {
  EXPECT_REFUSED(Small().Uint32("", 1), "is empty");
  EXPECT_REFUSED(Small().Uint32("flag", 1), "flag: the key appears twice");
  EXPECT_REFUSED(Small().TensorF32("a.weight", {1}, {0}), "a.weight: the tensor appears twice");
  EXPECT_REFUSED(Small().TensorF32("", {1}, {0}), "its name is empty");
  EXPECT_EQ(ErrorOf(Small().TensorF32(std::string(63, 'x'), {1}, {0})), "accepted");
  EXPECT_REFUSED(Small().TensorF32(std::string(64, 'x'), {1}, {0}), "a name of 64 bytes");
  // What is printed cannot harm a terminal.
  EXPECT_REFUSED(Small().Uint32("\x1b[2J\n", 1).Uint32("\x1b[2J\n", 1),
                 "\\x1b[2J\\x0a: the key appears twice");
}

TEST(Container, RefusesBadShapes) {
  const std::vector<std::byte> none;
  const auto f32 = TensorType::kF32;
  EXPECT_REFUSED(Small().Tensor("x", f32, {1, 1, 1, 1, 1}, none), "x: 5 dimensions");
  EXPECT_REFUSED(Small().Tensor("x", f32, {}, none), "x: 0 dimensions");
  EXPECT_REFUSED(Small().Tensor("x", f32, {0}, none), "x: dimension 0 is 0");
  EXPECT_REFUSED(Small().Tensor("x", f32, {4, -1}, none), "x: dimension 1 is -1");
  EXPECT_REFUSED(Small().Tensor("x", f32, {INT64_MAX, 2}, none), "does not fit 64 bits");
  EXPECT_REFUSED(Small().Tensor("x", f32, {INT64_MAX / 2}, none), "does not fit 64 bits");
  EXPECT_REFUSED(Small().Tensor("x", f32, {int64_t{1} << 60}, none), "x: the file ends");
  EXPECT_REFUSED(Small().Tensor("x", TensorType::kQ4_K, {128}, none), "needs a multiple of 256");
}

TEST(Container, NamesUnknownAndUnsupportedTypes) {
  const auto with_type = [](uint32_t id) {
    return Small().Tensor("blk.3.attn_q.weight", static_cast<TensorType>(id), {256}, {});
  };
  EXPECT_REFUSED(with_type(99), "blk.3.attn_q.weight: type 99 unknown; supported: F32 F16 Q4_0");
  EXPECT_REFUSED(with_type(16), "type IQ2_XXS is not supported");
  for (const uint32_t removed : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, UINT32_MAX}) {
    EXPECT_NE(ErrorOf(with_type(removed)), "accepted") << removed;
  }
}

TEST(Container, RefusesBadOffsetsAndAlignments) {
  for (const int64_t error : {int64_t{32}, int64_t{-32}, INT64_MAX - 31, int64_t{1} << 40}) {
    Builder builder = Small();
    builder.offset_error = error;
    EXPECT_REFUSED(builder, "c.weight: offset");
  }
  Builder builder = Small();
  builder.offset_error = 4;
  EXPECT_REFUSED(builder, "not a multiple of the alignment 32");
  for (const uint64_t alignment : {0u, 3u, 33u, 0xFFFFFFFFu}) {
    builder = Small();
    builder.alignment = alignment;
    EXPECT_REFUSED(builder, "expected a power of two");
  }
  EXPECT_REFUSED(Small().Uint64("general.alignment", 32),
                 "general.alignment: type u64, expected u32");
  EXPECT_REFUSED(Small().String("general.alignment", "32"),
                 "general.alignment: type string, expected u32");
  // The largest power of two a u32 holds: offsets stop matching, nothing overflows.
  EXPECT_NE(ErrorOf(Small().Uint32("general.alignment", 1u << 31)), "accepted");
}

TEST(Container, SurvivesRandomDamage) {
  const auto good = Small().Bytes();
  Rng rng(7);
  int n_accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    auto bytes = good;
    const uint64_t n_changes = 1 + rng.Below(4);
    for (uint64_t change = 0; change < n_changes; ++change) {
      bytes[rng.Below(bytes.size())] = static_cast<std::byte>(rng.Next());
    }
    if (rng.Below(4) == 0) bytes.resize(rng.Below(bytes.size()));
    const auto parsed = ParseShard(bytes);
    if (!parsed) continue;
    ++n_accepted;
    for (const Tensor& tensor : parsed->tensors) {
      // Whatever is accepted lies inside the bytes and has the size its type and shape say.
      if (tensor.bytes.empty()) continue;
      ASSERT_GE(tensor.bytes.data(), bytes.data());
      ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), bytes.data() + bytes.size());
      ASSERT_EQ(static_cast<int64_t>(tensor.bytes.size()),
                RowBytes(tensor.type, tensor.shape[0]) * (tensor.n_elements() / tensor.shape[0]));
    }
  }
  EXPECT_GT(n_accepted, 100);  // damage to tensor data and names is no reason to refuse
}

}  // namespace
}  // namespace winnow::gguf

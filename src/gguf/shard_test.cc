// Every malformed container that the parser must reject.
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

std::string ErrorText(const Builder& builder) {
  const auto parsed = ParseShard(builder.Bytes());
  return parsed ? "accepted" : parsed.error().message;
}

#define EXPECT_REFUSED(builder, words) \
  EXPECT_NE(ErrorText(builder).find(words), std::string::npos) << ErrorText(builder)

TEST(Shard, ReadsWhatTheBuilderWrote) {
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

TEST(Shard, OtherVersionsAndAlignments) {
  for (const uint64_t alignment : {8, 16, 64, 4096}) {
    Builder builder = Small();
    builder.version = 2;
    builder.alignment = alignment;
    EXPECT_EQ(ErrorText(builder), "accepted") << alignment;
  }
}

TEST(Shard, RefusesWrongHeaders) {
  Builder builder = Small();
  builder.magic = 0x46554748;
  EXPECT_REFUSED(builder, "not a GGUF file: it starts with \"HGUF\"");
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    builder = Small();
    builder.version = version;
    EXPECT_REFUSED(builder, "is not supported (2 or 3 expected)");
  }
  builder = Small();
  builder.version = 0x03000000u;
  EXPECT_REFUSED(builder, "big-endian");
}

TEST(Shard, RefusesCountsTheFileCannotHold) {
  for (const int64_t extra : {int64_t{-4}, int64_t{1000}, int64_t{1} << 40, INT64_MAX - 10}) {
    Builder builder = Small();
    builder.extra_tensors = extra;
    EXPECT_REFUSED(builder, " tensors (at most ");
    builder = Small();
    builder.extra_values = extra - 4;
    EXPECT_REFUSED(builder, " metadata keys, but at most ");
  }
}

TEST(Shard, RefusesTruncationAtEveryByte) {
  const auto bytes = Small().Bytes();
  // The last tensor ends 32 - 12 bytes of padding before the end; that padding may be missing.
  const size_t needed = bytes.size() - 20;
  for (size_t size = 0; size < needed; ++size) {
    const auto parsed = ParseShard(std::span(bytes).first(size));
    ASSERT_FALSE(parsed) << size;
    ASSERT_FALSE(parsed.error().message.empty());
  }
  EXPECT_TRUE(ParseShard(std::span(bytes).first(needed)));
}

TEST(Shard, RefusesImpossibleStringsAndArrays) {
  for (const uint64_t length :
       {uint64_t{1} << 20, uint64_t{1} << 31, uint64_t{1} << 63, UINT64_MAX}) {
    Builder string;
    string.Raw("text", 8, Packed(length));
    EXPECT_NE(ErrorText(string), "accepted") << length;
    EXPECT_REFUSED(string, "text");
    for (const uint32_t element : {0u, 2u, 4u, 6u, 8u, 10u, 12u}) {
      Builder array;
      array.Raw("list", kArrayType, Packed(element, length));
      EXPECT_REFUSED(array, "list");
    }
  }
  Builder nested;
  nested.Raw("deep", kArrayType, Packed(kArrayType, uint64_t{1}, uint32_t{4}, uint64_t{0}));
  EXPECT_REFUSED(nested, "deep: array of arrays");
  Builder unknown;
  unknown.Raw("odd", 13, Packed(uint32_t{0}));
  EXPECT_REFUSED(unknown, "odd: value type 13 unknown");
  Builder element;
  element.Raw("odd", kArrayType, Packed(uint32_t{77}, uint64_t{0}));
  EXPECT_REFUSED(element, "odd: value type 77 unknown");
}

TEST(Shard, RefusesBadNames) {
  EXPECT_REFUSED(Small().Uint32("", 1), "metadata key 6: empty key");
  EXPECT_REFUSED(Small().Uint32("flag", 1), "flag: key appears twice");
  EXPECT_REFUSED(Small().TensorF32("a.weight", {1}, {0}), "a.weight: tensor appears twice");
  EXPECT_REFUSED(Small().TensorF32("", {1}, {0}), "tensor 3: empty name");
  EXPECT_EQ(ErrorText(Small().TensorF32(std::string(63, 'x'), {1}, {0})), "accepted");
  EXPECT_REFUSED(Small().TensorF32(std::string(64, 'x'), {1}, {0}), "name of 64 bytes");
  // Messages escape control characters, so they cannot affect a terminal.
  EXPECT_REFUSED(Small().Uint32("\x1b[2J\n", 1), "not printable ASCII: \\x1b[2J\\x0a");
  EXPECT_REFUSED(Small().TensorF32("\xff\n", {1}, {0}), "not printable ASCII: \\xff\\x0a");
  EXPECT_REFUSED(Small().Uint32(std::string(70000, 'k'), 1), "key of 70000 bytes");
}

TEST(Shard, RefusesBadShapes) {
  const std::vector<std::byte> none;
  const auto f32 = TensorType::kF32;
  EXPECT_REFUSED(Small().Tensor("x", f32, {1, 1, 1, 1, 1}, none), "x: 5 dimensions");
  EXPECT_REFUSED(Small().Tensor("x", f32, {}, none), "x: 0 dimensions");
  EXPECT_REFUSED(Small().Tensor("x", f32, {0}, none), "x: dimension 0 is 0");
  EXPECT_REFUSED(Small().Tensor("x", f32, {4, -1}, none), "x: dimension 1 is -1");
  EXPECT_REFUSED(Small().Tensor("x", f32, {INT64_MAX, 2}, none), "x: more than 2^63 elements");
  EXPECT_REFUSED(Small().Tensor("x", f32, {INT64_MAX / 2}, none), "x: more than 2^63 bytes");
  EXPECT_REFUSED(Small().Tensor("x", f32, {int64_t{1} << 60}, none), "file is truncated");
  EXPECT_REFUSED(Small().Tensor("x", TensorType::kQ4_K, {128}, none),
                 "x: rows of 128 elements (a multiple of 256 expected for Q4_K)");
}

TEST(Shard, NamesUnknownAndUnsupportedTypes) {
  const auto with_type = [](uint32_t id) {
    return Small().Tensor("blk.3.attn_q.weight", static_cast<TensorType>(id), {256}, {});
  };
  EXPECT_REFUSED(with_type(99), "blk.3.attn_q.weight: type 99 unknown (supported: F32, F16, Q4_0,");
  EXPECT_REFUSED(with_type(16), "type IQ2_XXS is not supported");
  for (const uint32_t removed : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, UINT32_MAX}) {
    EXPECT_NE(ErrorText(with_type(removed)), "accepted") << removed;
  }
}

TEST(Shard, RefusesBadOffsetsAndAlignments) {
  for (const int64_t error : {int64_t{32}, int64_t{-32}, INT64_MAX - 31, int64_t{1} << 40}) {
    Builder builder = Small();
    builder.offset_error = error;
    EXPECT_REFUSED(builder, "c.weight: data at offset");
  }
  Builder builder = Small();
  builder.offset_error = 4;
  EXPECT_REFUSED(builder, "c.weight: data at offset 164 (160 expected)");
  for (const uint32_t alignment : {0u, 1u, 4u, 12u, 33u, 0xFFFFFFFFu}) {
    EXPECT_REFUSED(Small().Uint32("general.alignment", alignment),
                   "general.alignment: " + std::to_string(alignment) + " (a power of two");
  }
  EXPECT_REFUSED(Small().Uint64("general.alignment", 32), "general.alignment: type u64 (u32");
  EXPECT_REFUSED(Small().String("general.alignment", "32"), "general.alignment: type string (u32");
  // The largest power of two that fits in a u32.
  EXPECT_REFUSED(Small().Uint32("general.alignment", 1u << 31), "b.weight: data at offset 32 (");
}

TEST(Shard, RefusesSizesThatOverflowTogether) {
  // x has 2^63 - 4 bytes. y starts at 2^63, the offset it must have, but ends past 2^64.
  const int64_t x_size = INT64_MAX / 4;
  const auto with_y = [&](int64_t size) {
    Builder builder;
    builder.Tensor("x", TensorType::kF32, {x_size}, {}).Tensor("y", TensorType::kF32, {size}, {});
    builder.offset_error = INT64_MIN;
    return builder;
  };
  EXPECT_REFUSED(with_y(x_size), "y: the tensors' bytes overflow 64 bits");
  // y ends 64 bytes before 2^64; adding the start of the data section overflows.
  EXPECT_REFUSED(with_y((int64_t{1} << 61) - 16), "y: the tensors' bytes overflow 64 bits");
  EXPECT_REFUSED(with_y(1), "file is truncated: 9223372036854775");
}

TEST(Shard, SaysHowManyBytesAreMissing) {
  Builder builder = Small();
  builder.truncate_bytes = 20 + 5;  // padding after the last tensor, and 5 bytes of it
  EXPECT_REFUSED(builder, "file is truncated: 5 bytes missing");
}

TEST(Shard, RefusesBoolsThatAreNeither) {
  EXPECT_REFUSED(Small().Raw("odd", 7, Packed(uint8_t{2})), "odd: bool of value 2");
  EXPECT_REFUSED(Small().Raw("odd", kArrayType, Packed(uint32_t{7}, uint64_t{2}, uint16_t{0x0301})),
                 "odd: element 1: bool of value 3");
}

TEST(Shard, KeepsAnyBytesInStrings) {
  const auto bytes = Small().String("raw", "\xff\x1b").Bytes();
  const auto parsed = ParseShard(bytes);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(std::get<std::string_view>(parsed->metadata.back().second.data), "\xff\x1b");
}

TEST(Shard, SurvivesRandomDamage) {
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
      // Accepted tensors lie inside the bytes and have the size given by type and shape.
      if (tensor.bytes.empty()) continue;
      ASSERT_GE(tensor.bytes.data(), bytes.data());
      ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), bytes.data() + bytes.size());
      ASSERT_EQ(static_cast<int64_t>(tensor.bytes.size()),
                RowBytes(tensor.type, tensor.shape[0]) * (tensor.n_elements() / tensor.shape[0]));
    }
  }
  EXPECT_GT(n_accepted, 100);  // damaged tensor data or names need not be rejected
}

}  // namespace
}  // namespace winnow::gguf

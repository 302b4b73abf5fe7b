#include "base/bytes.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Bytes, WhatIsWrittenIsRead) {
  std::string bytes;
  ByteWriter writer(bytes);
  const std::vector<double> numbers = {1.5, -2};
  writer.Put(uint8_t{7});
  writer.Put(int64_t{-1});
  writer.PutList(std::span<const double>(numbers));
  writer.PutText("text");
  writer.PutList(std::span<const int32_t>());
  writer.Extend(2)[1] = std::byte{9};

  ByteReader reader(AsBytes(bytes));
  uint8_t small = 0;
  int64_t large = 0;
  std::vector<double> list;
  std::string text;
  std::vector<int32_t> none = {1};
  std::span<const std::byte> rest;
  EXPECT_TRUE(reader.Get(small) && reader.Get(large) && reader.GetList(list));
  EXPECT_TRUE(reader.GetText(text) && reader.GetList(none) && reader.GetRaw(2, rest));
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(small, 7);
  EXPECT_EQ(large, -1);
  EXPECT_EQ(list, numbers);
  EXPECT_EQ(text, "text");
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(rest[1], std::byte{9});
}

TEST(Bytes, TooFewAreNotRead) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.Put(uint64_t{1} << 61);  // as a list's length: far more elements than there are bytes
  ByteReader lists(AsBytes(bytes));
  std::vector<double> list;
  EXPECT_FALSE(lists.GetList(list));
  ByteReader texts(AsBytes(bytes));
  std::string text;
  EXPECT_FALSE(texts.GetText(text));
  ByteReader few(AsBytes(bytes).first(3));
  uint32_t number = 0;
  EXPECT_FALSE(few.Get(number));
  EXPECT_FALSE(few.at_end());
}

}  // namespace
}  // namespace winnow

#include "eval/identity.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "eval/sha256.h"

namespace winnow::eval {
namespace {

std::string HexOf(std::string_view text) {
  Sha256 hash;
  hash.Add(std::as_bytes(std::span(text)));
  return hash.Hex();
}

TEST(Sha256, PublishedExamples) {
  // FIPS 180-4, and its appendix of long messages.
  EXPECT_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexOf(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
  Sha256 hash;
  for (int i = 0; i < 1000; ++i) {
    const std::string piece(static_cast<size_t>(i % 130), 'a');
    hash.Add(std::as_bytes(std::span(piece)));
  }
  size_t n = 0;
  for (int i = 0; i < 1000; ++i) n += static_cast<size_t>(i % 130);
  EXPECT_EQ(hash.Hex(), HexOf(std::string(n, 'a')));
}

TEST(HashOf, FewBytesWhole) {
  const std::string text = "abc";
  EXPECT_EQ(HashOf(std::as_bytes(std::span(text))), "sha256:" + HexOf("abc"));
}

TEST(HashOf, ManyBytesSampled) {
  std::vector<std::byte> bytes((size_t{64} << 20) + 1);
  const std::string before = HashOf(bytes);
  EXPECT_TRUE(before.starts_with("sampled-sha256:"));
  EXPECT_EQ(HashOf(bytes), before);
  bytes[100] = std::byte{1};
  EXPECT_NE(HashOf(bytes), before);
}

TEST(HashOf, SplitFilesByAllParts) {
  const std::string texts[] = {"abc", "abd", "x"};
  const auto hash = [&](std::initializer_list<int> which) {
    std::vector<std::span<const std::byte>> parts;
    for (const int i : which) parts.push_back(std::as_bytes(std::span(texts[i])));
    return HashOfParts(parts);
  };
  EXPECT_EQ(hash({0}), "sha256:" + HexOf("abc"));
  EXPECT_EQ(hash({0, 2}),
            "split-sha256:" + HexOf("sha256:" + HexOf("abc") + "sha256:" + HexOf("x")));
  EXPECT_NE(hash({0, 1}), hash({0, 2}));
}

}  // namespace
}  // namespace winnow::eval

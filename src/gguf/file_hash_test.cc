#include "gguf/file_hash.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace winnow::gguf {
namespace {

std::string HexDigest(std::string_view text) {
  Sha256 hash;
  hash.Add(std::as_bytes(std::span(text)));
  return hash.Hex();
}

TEST(ContentHash, FewBytesWhole) {
  const std::string text = "abc";
  EXPECT_EQ(ContentHash(std::as_bytes(std::span(text))), "sha256:" + HexDigest("abc"));
}

TEST(ContentHash, ManyBytesSampled) {
  std::vector<std::byte> bytes((size_t{64} << 20) + 1);
  const std::string before = ContentHash(bytes);
  EXPECT_TRUE(before.starts_with("sampled-sha256:"));
  EXPECT_EQ(ContentHash(bytes), before);
  bytes[100] = std::byte{1};
  EXPECT_NE(ContentHash(bytes), before);
}

TEST(ContentHash, SplitFilesByAllParts) {
  const std::string texts[] = {"abc", "abd", "x"};
  const auto hash = [&](std::initializer_list<int> which) {
    std::vector<std::span<const std::byte>> parts;
    for (const int i : which) parts.push_back(std::as_bytes(std::span(texts[i])));
    return ContentHashOfParts(parts);
  };
  EXPECT_EQ(hash({0}), "sha256:" + HexDigest("abc"));
  EXPECT_EQ(hash({0, 2}),
            "split-sha256:" + HexDigest("sha256:" + HexDigest("abc") + "sha256:" + HexDigest("x")));
  EXPECT_NE(hash({0, 1}), hash({0, 2}));
}

}  // namespace
}  // namespace winnow::gguf

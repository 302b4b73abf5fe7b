#include "base/sha256.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace winnow {
namespace {

std::string HexDigest(std::string_view text) {
  Sha256 hash;
  hash.Add(std::as_bytes(std::span(text)));
  return hash.Hex();
}

TEST(Sha256, PublishedExamples) {
  // FIPS 180-4 and its long-message examples.
  EXPECT_EQ(HexDigest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexDigest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexDigest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexDigest(std::string(1000000, 'a')),
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
  EXPECT_EQ(hash.Hex(), HexDigest(std::string(n, 'a')));
}

}  // namespace
}  // namespace winnow

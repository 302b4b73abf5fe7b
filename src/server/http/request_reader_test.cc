#include "server/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace winnow::server {
namespace {

constexpr size_t kPiece = 4096;  // the read size of connections

// False: the request was refused.
bool Feed(RequestReader& reader, std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kPiece, bytes.size()))) {
    reader.Append(bytes.substr(0, kPiece));
    if (reader.Parse() || reader.CountLargeBody()) return false;
  }
  return true;
}

std::string Head(const std::string& header) {
  return "POST / HTTP/1.1\r\nHost: x\r\n" + header + "\r\n\r\n";
}

TEST(RequestReader, LargeBodiesCountWithWhatTheirBuffersMayHold) {
  constexpr size_t kBody = (size_t{1} << 20) + kPiece;
  const HttpOptions options;
  ByteLimit large(size_t{8} << 20);
  RequestReader reader(options, large);
  reader.Begin();
  ASSERT_TRUE(Feed(reader, Head("Transfer-Encoding: chunked") + "110000\r\n"));  // not complete
  ASSERT_TRUE(Feed(reader, std::string(kBody, 'x')));
  EXPECT_GT(large.held(), kBody + kBody / 4) << "it doubles, as nothing says where it ends";
  ByteLimit small(kBody + kBody / 4);
  RequestReader refused(options, small);
  refused.Begin();
  EXPECT_FALSE(
      Feed(refused, Head("Transfer-Encoding: chunked") + "110000\r\n" + std::string(kBody, 'x')));
}

TEST(RequestReader, AnAnnouncedBodyTakesNoMoreThanIt) {
  constexpr size_t kBody = 777'777;
  const HttpOptions options;
  ByteLimit large(kBody);
  RequestReader reader(options, large);
  reader.Begin();
  ASSERT_TRUE(Feed(reader, Head("Content-Length: " + std::to_string(kBody))));
  EXPECT_LT(reader.held_bytes(), size_t{16} << 10) << "what is announced only";
  ASSERT_TRUE(Feed(reader, std::string(kBody, 'x')));
  ASSERT_TRUE(reader.is_complete());
  EXPECT_EQ(large.held(), kBody);
  EXPECT_EQ(reader.Take().body(), std::string(kBody, 'x'));
  EXPECT_EQ(large.held(), kBody) << "until it is handed on";
  reader.ReleaseTaken();
  EXPECT_EQ(large.held(), 0U);
}

TEST(RequestReader, WhatAppendingWillTakeIsKnownBefore) {
  const HttpOptions options;
  ByteLimit large(0);
  RequestReader reader(options, large);
  reader.Begin();
  const std::string piece(kPiece, 'x');
  for (int i = 0; i < 100; ++i) {
    const size_t expected = reader.HeldBytesWith(piece.size());
    reader.Append(piece);
    ASSERT_EQ(reader.held_bytes(), expected) << i;
  }
  EXPECT_LT(reader.held_bytes(), 2 * reader.n_buffered());
}

TEST(RequestReader, SmallBodiesAndHeadersAreHeld) {
  const HttpOptions options;
  ByteLimit large(0);
  RequestReader reader(options, large);
  reader.Begin();
  constexpr size_t kNearlyNothing = 64;
  EXPECT_LT(reader.held_bytes(), kNearlyNothing);
  const std::string field(20'000, 'x');
  ASSERT_TRUE(Feed(reader, "POST / HTTP/1.1\r\nX: " + field));
  EXPECT_GE(reader.held_bytes(), field.size());
  ASSERT_TRUE(Feed(reader, "\r\nContent-Length: 50000\r\n\r\n" + field + field));
  EXPECT_GE(reader.held_bytes(), 3 * field.size());
  ASSERT_TRUE(Feed(reader, std::string(10'000, 'x')));
  EXPECT_EQ(reader.Take().body().size(), 50'000U);
  EXPECT_GE(reader.held_bytes(), 50'000U) << "until it is handed on";
  reader.ReleaseTaken();
  EXPECT_LT(reader.held_bytes(), size_t{64} << 10) << "what waits for the next one";
  reader.Begin();
  EXPECT_LT(reader.held_bytes(), kNearlyNothing);
}

}  // namespace
}  // namespace winnow::server

#include "server/http/byte_limit.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace winnow::server {
namespace {

TEST(ByteLimit, SharesTakeNoMoreThanThereIs) {
  ByteLimit limit(100);
  ByteLimit::Share first(limit);
  EXPECT_TRUE(first.Resize(60));
  {
    ByteLimit::Share second(limit);
    EXPECT_FALSE(second.Resize(41));
    EXPECT_EQ(limit.held(), 60U) << "as before";
    EXPECT_TRUE(second.Resize(40));
    EXPECT_FALSE(first.Resize(61));
    EXPECT_TRUE(first.Resize(10));
    EXPECT_EQ(limit.held(), 50U);
  }
  EXPECT_EQ(limit.held(), 10U) << "what one held is free with it";
  EXPECT_TRUE(first.Resize(100));
}

TEST(ByteLimit, ThreadsTogether) {
  constexpr size_t kMax = 1000;
  ByteLimit limit(kMax);
  std::vector<std::thread> threads;
  for (size_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&limit, t] {
      ByteLimit::Share share(limit);
      for (size_t i = 0; i < 10'000; ++i) share.Resize(i * t % kMax);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(limit.held(), 0U);
}

}  // namespace
}  // namespace winnow::server

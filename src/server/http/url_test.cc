#include "server/http/url.h"

#include <gtest/gtest.h>

namespace winnow::server {
namespace {

TEST(UrlTest, PathAndQuery) {
  const auto target = ParseTarget("/a%20b/c?x=1&y=a%26b+c&&z#end");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, "/a b/c");
  EXPECT_EQ(target->query, (HttpRequest::Pairs{{"x", "1"}, {"y", "a&b c"}, {"z", ""}}));
  EXPECT_EQ(ParseTarget("/%41")->path, "/A");
}

TEST(UrlTest, InvalidTargets) {
  for (const char* wrong : {"", "a", "http://x/", "*", "/%4", "/%", "/%zz", "/a%00b", "/?%4"}) {
    EXPECT_FALSE(ParseTarget(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace winnow::server

#include "text_input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace winnow::apps {
namespace {

TEST(Unescaped, KnowsTheUsualOnes) {
  EXPECT_EQ(Unescaped(R"(a\nb\tc\\d\"e\'f\r)"), "a\nb\tc\\d\"e'f\r");
  EXPECT_EQ(Unescaped(R"(\x41\xe9\x0a)"), "A\xe9\n");
}

TEST(Unescaped, LeavesTheOthers) {
  EXPECT_EQ(Unescaped(R"(C:\dir \x4 \xg1 end\)"), R"(C:\dir \x4 \xg1 end\)");
}

TEST(ReadTextFile, ReadsLineEndsOfWindowsAsLineFeeds) {
  const std::string path = testing::TempDir() + "winnow-text-input-" + std::to_string(getpid());
  const auto read = [&](const std::string& content, bool raw) {
    std::ofstream(path, std::ios::binary) << content;
    NullLog log;
    return ReadTextFile(path, raw, log).value();
  };
  EXPECT_EQ(read("a\r\nb\r\n\r\n", false), "a\nb\n\n");
  EXPECT_EQ(read("a\r\r\nb\rc\r", false), "a\r\nb\rc\r");  // only \r\n is replaced
  EXPECT_EQ(read("a\r\nb", true), "a\r\nb");
  EXPECT_EQ(read("a\nb", false), "a\nb");
  std::filesystem::remove(path);
}

TEST(WithoutFinalNewline, DropsExactlyOne) {
  EXPECT_EQ(WithoutFinalNewline("a\n"), "a");
  EXPECT_EQ(WithoutFinalNewline("a\r\n"), "a");
  EXPECT_EQ(WithoutFinalNewline("a\n\n"), "a\n");
  EXPECT_EQ(WithoutFinalNewline("a\r"), "a\r");
  EXPECT_EQ(WithoutFinalNewline("\n"), "");
  EXPECT_EQ(WithoutFinalNewline(""), "");
}

}  // namespace
}  // namespace winnow::apps

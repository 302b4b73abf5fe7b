#include "runtime/store/saved_prefixes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "compression/registry.h"

namespace winnow::runtime {
namespace {

constexpr int64_t kBlock = SavedPrefixes::kBlock;

std::vector<TokenId> Text(int64_t n, TokenId first = 1) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<TokenId> Then(std::vector<TokenId> text, int64_t n) {
  const std::vector<TokenId> more = Text(n, 5000);
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

SessionOptions With(const std::string& method) {
  SessionOptions options;
  options.compression.method = compression::MakeMethod(method).value();
  options.compression.size = 32;
  return options;
}

class SavedPrefixesTest : public ::testing::Test {
 protected:
  // The match of a prompt as "file n_tokens"; "" if there is none.
  std::string Find(const std::vector<TokenId>& prompt, const SessionOptions& options = {},
                   bool across = false, int64_t n_wanted = kBlock) const {
    const SavedPrefixes::Found found = saved_.Find(prompt, options, across, n_wanted);
    return found.file.empty() ? "" : found.file + " " + std::to_string(found.match.n_tokens);
  }
  SavedPrefixes saved_;
};

TEST_F(SavedPrefixesTest, WithoutAMethodWholeBlocksAndWholeTextsAreFound) {
  saved_.Set("a", {}, Text(200), true);
  EXPECT_EQ(Find(Then(Text(200), 9)), "a 200");
  EXPECT_EQ(Find(Then(Text(199), 9)), "a 192");
  EXPECT_EQ(Find(Then(Text(130), 90)), "a 128");
  EXPECT_EQ(Find(Text(150)), "a 128");
  EXPECT_EQ(Find(Then(Text(63), 200)), "");
  EXPECT_EQ(Find(Text(63)), "");
  EXPECT_EQ(Find({}), "");
  EXPECT_EQ(Find(Text(200, 2)), "");
}

TEST_F(SavedPrefixesTest, TheWholePromptNeedsTheLogitsAfterIt) {
  saved_.Set("a", {}, Text(200), true);
  EXPECT_EQ(Find(Text(200)), "a 200");
  saved_.Set("a", {}, Text(200), false);
  EXPECT_EQ(Find(Text(200)), "a 199");
  saved_.Set("a", With("streaming"), Text(200), false);
  EXPECT_EQ(Find(Text(200), With("streaming")), "");
  saved_.Set("a", With("streaming"), Text(200), true);
  EXPECT_EQ(Find(Text(200), With("streaming")), "a 200");
}

TEST_F(SavedPrefixesTest, ACompressedTextServesFromItsEndOnAndItsOwnQuestionOnly) {
  saved_.Set("a", With("streaming"), Text(200), true);
  saved_.Set("b", With("snapkv:window=8"), Text(200), true);
  EXPECT_EQ(Find(Then(Text(200), 9)), "") << "another cache";
  EXPECT_EQ(Find(Then(Text(200), 9), With("streaming")), "a 200");
  EXPECT_EQ(Find(Then(Text(192), 90), With("streaming")), "");
  EXPECT_EQ(Find(Text(192), With("streaming")), "");
  EXPECT_EQ(Find(Then(Text(200), 9), With("snapkv:window=8")), "");
  EXPECT_EQ(Find(Then(Text(200), 9), With("snapkv:window=8"), true), "b 200");
  EXPECT_EQ(Find(Text(200), With("snapkv:window=8")), "b 200") << "the same question";
}

TEST_F(SavedPrefixesTest, TheLongestIsTakenAndNoneForASmallPartOfIt) {
  saved_.Set("long", {}, Text(kBlock * 20), true);
  EXPECT_EQ(Find(Then(Text(kBlock * 4), 9)), "");
  EXPECT_EQ(Find(Then(Text(kBlock * 5), 9)), "long 320");
  saved_.Set("short", {}, Text(kBlock * 3 + 5), true);
  EXPECT_EQ(Find(Then(Text(kBlock * 4), 9)), "short 197");
  EXPECT_EQ(Find(Then(Text(kBlock * 5), 9)), "long 320");
  EXPECT_EQ(Find(Then(Text(kBlock * 4), 9), {}, false, 198), "");
  saved_.Erase("short");
  EXPECT_EQ(Find(Then(Text(kBlock * 4), 9)), "");
}

// A block's hash covers all blocks before it: the same block elsewhere does not match.
TEST_F(SavedPrefixesTest, TheOrderOfBlocksCounts) {
  std::vector<TokenId> ab = Text(kBlock, 1), ba = Text(kBlock, 1000);
  ab.insert(ab.end(), ba.begin(), ba.end());
  const std::vector<TokenId> a = Text(kBlock, 1);
  ba.insert(ba.end(), a.begin(), a.end());
  saved_.Set("ab", {}, ab, true);
  EXPECT_EQ(Find(Then(ab, 3)), "ab 128");
  EXPECT_EQ(Find(Then(ba, 3)), "");
}

}  // namespace
}  // namespace winnow::runtime

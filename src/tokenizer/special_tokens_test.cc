#include "tokenizer/special_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace winnow::tokenizer {
namespace {

// "text" for ordinary text, "#3" for token 3.
std::string Show(const std::vector<Fragment>& fragments) {
  std::string shown;
  for (const Fragment& fragment : fragments) {
    if (!shown.empty()) shown += ' ';
    shown += fragment.is_token() ? "#" + std::to_string(fragment.token)
                                 : "'" + std::string(fragment.text) + "'";
  }
  return shown;
}

std::string Partition(const SpecialTokens& tokens, std::string_view text,
                      std::vector<Range> plain = {}) {
  return Show(tokens.Partition(text, plain));
}

TEST(SpecialTokens, CutsTextAtTokens) {
  const SpecialTokens tokens({{"<a>", 1}, {"<b>", 2}});
  EXPECT_EQ(Partition(tokens, ""), "");
  EXPECT_EQ(Partition(tokens, "plain"), "'plain'");
  EXPECT_EQ(Partition(tokens, "<a>"), "#1");
  EXPECT_EQ(Partition(tokens, "x<a><b>y <b"), "'x' #1 #2 'y <b'");
  EXPECT_EQ(Partition(SpecialTokens(), "<a>"), "'<a>'");
}

TEST(SpecialTokens, TheLongestGoesFirstEvenIfItBeginsLater) {
  const SpecialTokens tokens({{"ab", 1}, {"bcd", 2}, {"a", 3}, {"aaa", 4}});
  EXPECT_EQ(Partition(tokens, "abcd"), "#3 #2");  // ab would overlap bcd, but a fits
  EXPECT_EQ(Partition(tokens, "abc"), "#1 'c'");
  EXPECT_EQ(Partition(tokens, "aaaaa"), "#4 #3 #3");
}

TEST(SpecialTokens, OfEqualLengthTheLeftmostGoesFirst) {
  const SpecialTokens tokens({{"ab", 1}, {"ba", 2}});
  EXPECT_EQ(Partition(tokens, "aba"), "#1 'a'");
  EXPECT_EQ(Partition(tokens, "bab"), "#2 'b'");
}

TEST(SpecialTokens, OfEqualTextsTheLastCounts) {
  EXPECT_EQ(Partition(SpecialTokens({{"<a>", 1}, {"<a>", 7}, {"", 9}}), "<a>"), "#7");
}

TEST(SpecialTokens, TakesTheSpaceBehindWhereItIsItsOwn) {
  const SpecialTokens tokens({{.text = "<a>", .token = 1, .strips_space_after = true}, {"<b>", 2}});
  EXPECT_EQ(Partition(tokens, "x <a> \n\ty"), "'x ' #1 'y'");
  EXPECT_EQ(Partition(tokens, "<a> <b> y"), "#1 #2 ' y'");
  EXPECT_EQ(Partition(tokens, "<a>  "), "#1");
}

TEST(SpecialTokens, PlainTextHoldsOnlyWhatIsAllowedThere) {
  const SpecialTokens tokens({{"<a>", 1}, {.text = "<u>", .token = 2, .in_plain_text = true}});
  const std::string text = "<a><u><a><u>";
  EXPECT_EQ(Partition(tokens, text), "#1 #2 #1 #2");
  EXPECT_EQ(Partition(tokens, text, {{0, text.size()}}), "'<a>' #2 '<a>' #2");
  EXPECT_EQ(Partition(tokens, text, {{6, 12}}), "#1 #2 '<a>' #2");
  // One byte in plain text, at either end, rules a token out.
  EXPECT_EQ(Partition(tokens, "<a><a>", {{0, 1}, {5, 6}}), "'<a><a>'");
  EXPECT_EQ(Partition(tokens, "<a><a>", {{2, 4}}), "'<a><a>'");
  EXPECT_EQ(Partition(tokens, "<a><a>", {{0, 3}}), "'<a>' #1");
  EXPECT_EQ(Partition(tokens, "<a><a>", {{3, 6}}), "#1 '<a>'");
}

// The usual formulation: for each token, longest first, split every piece of text at it.
std::vector<Fragment> PartitionOneByOne(std::vector<SpecialTokens::Entry> entries,
                                        std::string_view text) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({.text = text});
  for (const auto& entry : entries) {
    std::vector<Fragment> cut;
    for (const Fragment& fragment : fragments) {
      std::string_view rest = fragment.text;
      while (!fragment.is_token() && rest.find(entry.text) != std::string_view::npos) {
        const size_t at = rest.find(entry.text);
        if (at > 0) cut.push_back({.text = rest.substr(0, at)});
        cut.push_back({.text = rest.substr(at, entry.text.size()), .token = entry.token});
        rest.remove_prefix(at + entry.text.size());
      }
      if (fragment.is_token()) {
        cut.push_back(fragment);
      } else if (!rest.empty()) {
        cut.push_back({.text = rest});
      }
    }
    fragments = std::move(cut);
  }
  return fragments;
}

TEST(SpecialTokens, AgreesWithCuttingAtOneTokenAfterTheOther) {
  // One token per length, because the reference leaves the order among equal lengths open.
  const std::vector<SpecialTokens::Entry> entries = {
      {"a", 0}, {"ab", 1}, {"bab", 2}, {"aabb", 3}, {"abaab", 4}};
  const SpecialTokens tokens(entries);
  uint32_t random = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const int n = round % 40;
    for (int i = 0; i < n; ++i) {
      random = random * 1664525 + 1013904223;
      text += "aabbc"[(random >> 24) % 5];
    }
    ASSERT_EQ(Show(tokens.Partition(text, {})), Show(PartitionOneByOne(entries, text))) << text;
  }
}

TEST(SpecialTokens, LongRunsOfTokensTakeLinearTime) {
  std::vector<std::string> runs;
  for (size_t n = 2; n <= 31; ++n) runs.emplace_back(n, ' ');
  std::vector<SpecialTokens::Entry> entries;
  for (size_t i = 0; i < runs.size(); ++i) entries.push_back({runs[i], static_cast<TokenId>(i)});
  const std::string text(31 * 100000 + 7, ' ');
  const auto fragments = SpecialTokens(entries).Partition(text, {});
  ASSERT_EQ(fragments.size(), 100001u);
  EXPECT_EQ(fragments.back().text.size(), 7u);
}

}  // namespace
}  // namespace winnow::tokenizer

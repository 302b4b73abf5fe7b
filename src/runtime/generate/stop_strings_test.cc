#include "runtime/generate/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace winnow::runtime {
namespace {

TEST(StopStrings, WithoutStopsEverythingPassesAtOnce) {
  StopStrings stops({});
  EXPECT_EQ(stops.Push("abc"), "abc");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStrings, CutsBeforeTheStop) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.Push("one END two"), "one ");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.Push("more"), "");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStrings, HoldsBackABeginningUntilDecided) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.Push("aE"), "a");
  EXPECT_EQ(stops.Push("N"), "");
  EXPECT_EQ(stops.Push("x"), "ENx");
  EXPECT_EQ(stops.Push("EN"), "");
  EXPECT_EQ(stops.Push("D"), "");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, ABeginningInsideAFailedBeginningIsKept) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.Push("aa"), "");
  EXPECT_EQ(stops.Push("a"), "a");  // "aa" is still undecided
  EXPECT_EQ(stops.Push("b"), "");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, TheEarliestOfSeveralWins) {
  StopStrings stops({"later", "at"});
  EXPECT_EQ(stops.Push("x later"), "x ");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, FinishGivesWhatWasHeld) {
  StopStrings stops({"END", ""});
  EXPECT_EQ(stops.Push("aEN"), "a");
  EXPECT_EQ(stops.Finish(), "EN");
  EXPECT_FALSE(stops.stopped());
}

// However the text is cut into pieces, the output is the text before the first stop string.
TEST(StopStrings, AgreesWithSearchingTheWholeText) {
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += static_cast<char>('a' + rng.Below(3));
    std::vector<std::string> wanted;
    size_t first = std::string::npos;
    for (int i = 0; i < 2; ++i) {
      std::string stop;
      for (uint64_t n = 1 + rng.Below(4); n > 0; --n) stop += static_cast<char>('a' + rng.Below(3));
      first = std::min(first, text.find(stop));
      wanted.push_back(stop);
    }
    StopStrings at_once(wanted);
    std::string all = at_once.Push(text);
    all += at_once.Finish();
    EXPECT_EQ(all, text.substr(0, first));
    StopStrings stops(wanted);
    std::string shown;
    for (size_t at = 0; at < text.size() && !stops.stopped();) {
      const size_t n = 1 + rng.Below(3);
      shown += stops.Push(std::string_view(text).substr(at, n));
      at += n;
    }
    EXPECT_EQ(stops.stopped(), first != std::string::npos);
    shown += stops.Finish();
    // A piece may complete two stop strings at once; the one that begins first counts, unless the
    // other was already complete in an earlier piece.
    if (stops.stopped()) {
      EXPECT_GE(shown.size(), first) << text;
      EXPECT_EQ(shown, text.substr(0, shown.size()));
    } else {
      EXPECT_EQ(shown, text);
    }
  }
}

}  // namespace
}  // namespace winnow::runtime

#include "compression/error_profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace winnow::compression {
namespace {

// Two prompts of one head: the errors with 64 and 128 entries fall linearly to 0.
ErrorProfiles TwoPrompts() {
  ErrorProfiles profiles(1, 1);
  for (const auto order : {EntryOrder::kReplay, EntryOrder::kWindow}) {
    ErrorProfile& profile = profiles.For(order);
    const double scale = order == EntryOrder::kReplay ? 1 : 10;
    profile.Add(0, 0, {.sizes = {1, 64}, .errors = {63 * scale, 0}});
    profile.EndPrompt();
    profile.Add(0, 0, {.sizes = {1, 65, 128}, .errors = {127 * scale, 63 * scale, 0}});
    profile.EndPrompt();
  }
  return profiles;
}

TEST(ErrorProfile, IsTheMeanAtEqualShares) {
  const ErrorProfile profile = TwoPrompts().replay;
  const auto errors = profile.Errors(0, 0);
  EXPECT_NEAR(errors[0], 0, 1e-9);
  EXPECT_NEAR(errors[3], (32 + 64) / 2.0, 1e-9);    // a half of the entries
  EXPECT_NEAR(errors[18], (63 + 126) / 2.0, 1e-9);  // 1/64: one entry, and two
}

TEST(ErrorProfile, CurveHasWholeSizesFromOneToAll) {
  const ErrorCurve curve = TwoPrompts().replay.CurveFor(0, 0, 10);
  EXPECT_EQ(curve.sizes, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 8, 10}));
  ASSERT_EQ(curve.errors.size(), curve.sizes.size());
  EXPECT_NEAR(curve.errors.back(), 0, 1e-9);
  EXPECT_NEAR(curve.errors[4], 48, 1e-9);
  for (size_t i = 1; i < curve.errors.size(); ++i) EXPECT_LT(curve.errors[i], curve.errors[i - 1]);
  EXPECT_TRUE(TwoPrompts().replay.CurveFor(0, 0, 0).sizes.empty());
  // The curve also starts at one entry if the smallest share is more than one.
  const ErrorCurve longer = TwoPrompts().replay.CurveFor(0, 0, 10000);
  EXPECT_EQ(longer.sizes.front(), 1);
  EXPECT_EQ(longer.sizes[1], 49);
  EXPECT_EQ(longer.errors[0], longer.errors[1]);
  EXPECT_EQ(longer.sizes.back(), 10000);
}

TEST(ErrorProfiles, TextComesBack) {
  const std::string text = ToText(TwoPrompts(), "abc");
  const auto read = ReadErrorProfiles(text, "abc", 1, 1);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->replay.n_prompts(), 2);
  for (size_t i = 0; i < ErrorProfile::kPoints; ++i) {
    const double replay = TwoPrompts().replay.Errors(0, 0)[i];
    EXPECT_NEAR(read->replay.Errors(0, 0)[i], replay, 1e-5 * replay);
    EXPECT_NEAR(read->window.Errors(0, 0)[i], 10 * replay, 1e-4 * replay);
  }
}

std::string Refusal(std::string text, const std::string& from, const std::string& to,
                    int n_layers = 1) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, from.size(), to);
  const auto read = ReadErrorProfiles(text, "abc", n_layers, 1);
  return read ? "" : read.error().message;
}

TEST(ErrorProfiles, SaysWhatIsWrong) {
  const std::string text = ToText(TwoPrompts(), "abc");
  const std::string again = "; create a new one with 'winnow calibrate'";
  EXPECT_EQ(Refusal(text, "winnow", "winner"),
            "error profile: line 1: expected 'winnow error profile 1'" + again);
  EXPECT_EQ(Refusal(text, "abc", "abd"),
            "error profile: belongs to another model (hash abd, this model: abc); create one with "
            "'winnow calibrate'");
  EXPECT_EQ(
      Refusal(text, "abc", "abc", 2),
      "error profile: line 3: expected 'shape 2 1', layers and KV heads of the model" + again);
  EXPECT_EQ(Refusal(text, "replay 2", "replay 0"),
            "error profile: line 4: expected 'replay' and a number of prompts" + again);
  const std::string numbers =
      "error profile: line 5: expected 24 errors, numbers that are not negative, of KV head 0 of "
      "layer 0" +
      again;
  EXPECT_EQ(Refusal(text, "0 ", "-1 "), numbers);
  EXPECT_EQ(Refusal(text, "0 ", "nan "), numbers);
  EXPECT_EQ(Refusal(text, "0 ", "0 0 "), numbers);
  EXPECT_EQ(Refusal(text, text.substr(text.find("window")), ""),
            "error profile: line 6: expected 'window' and a number of prompts" + again);
  EXPECT_FALSE(ReadErrorProfiles(text + "x", "abc", 1, 1));
  EXPECT_FALSE(ReadErrorProfiles(text + "\n", "abc", 1, 1));
  EXPECT_NE(Refusal(text, "model abc", "model abc d").find("line 2"), std::string::npos);
  EXPECT_NE(Refusal(text, "shape 1 1", "shape 1 1 1").find("line 3"), std::string::npos);
  for (size_t n = 0; n < text.size(); ++n) {
    EXPECT_FALSE(ReadErrorProfiles(text.substr(0, n), "abc", 1, 1)) << n;
  }
}

}  // namespace
}  // namespace winnow::compression

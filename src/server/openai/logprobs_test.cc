// Log-probabilities: their values, and the memory they take.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

namespace winnow::server {
namespace {

using testing::FakeExchange;
using testing::Fixture;
using testing::Has;
using testing::IntAt;
using testing::TextAt;

// A token may end inside a character; its text still counts as one.
TEST(LogprobsTest, OffsetsAreCharactersInBothForms) {
  Fixture fixture;
  fixture.backend.words = {"\u00e9", "x", "y"};
  const std::string path = "choices.0.logprobs.text_offset.";
  const report::Record whole =
      fixture.Post("/v1/completions", R"({"prompt": "he", "logprobs": 0})")->json();
  const auto stream =
      fixture.Post("/v1/completions", R"({"prompt": "he", "logprobs": 0, "stream": true})")
          ->chunks();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(IntAt(whole, path + std::to_string(i)), i);
    EXPECT_EQ(IntAt(stream.at(static_cast<size_t>(i)), path + "0"), i);
  }
  EXPECT_FALSE(Has(whole, path + "3"));
}

TEST(LogprobsTest, AnAnswerWithoutTokensHasEmptyLists) {
  Fixture fixture;
  fixture.backend.words = {};
  const report::Record text =
      fixture.Post("/v1/completions", R"({"prompt": "he", "logprobs": 1})")->json();
  EXPECT_TRUE(Has(text, "choices.0.logprobs.text_offset"));
  const report::Record native =
      fixture.Post("/completion", R"({"prompt": "he", "n_probs": 1})")->json();
  EXPECT_TRUE(Has(native, "completion_probabilities"));
  EXPECT_FALSE(Has(native, "completion_probabilities.0"));
}

// They take many times the memory of the answer's text, until its last token.
TEST(LogprobsTest, CountWithTheBuffersOfConnections) {
  Fixture fixture({.n_slots = 2});
  const auto ask = [&](size_t max_held) {
    auto exchange = std::make_shared<FakeExchange>();
    exchange->max_held = max_held;
    fixture.service.Handle({.method = "POST",
                            .path = "/completion",
                            .body = R"({"prompt": "he", "n": 2, "n_probs": 9})"},
                           exchange);
    exchange->Run();
    return exchange;
  };
  const auto answer = ask(size_t{1} << 20);
  EXPECT_EQ(answer->status(), 200);
  EXPECT_GT(answer->held(), answer->response().body.size());
  const auto refused = ask(2000);
  EXPECT_EQ(refused->status(), 503);
  EXPECT_EQ(TextAt(refused->json(), "error.code"), "busy");
  EXPECT_EQ(fixture.backend.n_cancelled, 1);
}

TEST(ArrivalTest, TheFirstTokenIsTimedFromThere) {
  Fixture fixture;
  const auto waited = std::chrono::seconds(40);
  fixture.Exercise({.method = "POST",
                    .path = "/completion",
                    .body = R"({"prompt": "he"})",
                    .arrived = std::chrono::steady_clock::now() - waited});
  const std::string text = fixture.service.metrics().Text({}, {});
  for (const char* line : {"winnow_time_to_first_token_seconds_bucket{le=\"30\"} 0\n",
                           "winnow_time_to_first_token_seconds_bucket{le=\"60\"} 1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

}  // namespace
}  // namespace winnow::server

// Session::Score.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "api/tiny_model_test.h"
#include "winnow/winnow.h"

namespace winnow {
namespace {

class Score : public TinyModelTest {
 protected:
  Score() : TinyModelTest(2) {}

  Session NewSession(const SessionOptions& options = {}) {
    return std::move(model_->NewSession(options)).value();
  }

  const std::vector<Token> text_ = Document(40);
};

TEST_F(Score, TellsHowLikelyGeneratedTokensWere) {
  Session generating = NewSession();
  GenerateOptions options = Greedy(9);
  options.top_probabilities = 0;
  const Generation generated = generating.Generate(prompt_, options).value();
  std::vector<Token> text = prompt_;
  text.insert(text.end(), generated.tokens.begin(), generated.tokens.end());

  Session scoring = NewSession();
  double last = 0;
  const std::vector<double> scores =
      scoring.Score(text, {.on_progress = [&](double done) { last = done; }}).value();
  EXPECT_EQ(last, 1);
  ASSERT_EQ(scores.size(), text.size());
  EXPECT_TRUE(std::isnan(scores[0]));
  for (size_t i = 0; i < generated.tokens.size(); ++i) {
    EXPECT_NEAR(scores[prompt_.size() + i], generated.log_probabilities[i], 1e-4);
  }
  EXPECT_EQ(scoring.tokens().size(), text.size());
  // Scoring the text in parts gives the same values.
  Session in_parts = NewSession();
  const std::span<const Token> all = text;
  std::vector<double> parts = in_parts.Score(all.first(5)).value();
  const std::vector<double> rest = in_parts.Score(all.subspan(5)).value();
  parts.insert(parts.end(), rest.begin(), rest.end());
  for (size_t i = 1; i < scores.size(); ++i) EXPECT_NEAR(parts[i], scores[i], 1e-4);
  EXPECT_TRUE(in_parts.Score({}).value().empty());

  // If the last token's logits are missing, Score reads that token again.
  in_parts.Truncate(5);
  EXPECT_TRUE(in_parts.logits().empty());
  const std::vector<double> after = in_parts.Score(all.subspan(5)).value();
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], scores[i + 5], 1e-4);

  EXPECT_EQ(in_parts.Score(std::vector<Token>{70}).error().message,
            "Score: found token 70, expected 0 to 69");
}

TEST_F(Score, HandsOutEveryRowFromTheFirstScoredTokenOn) {
  std::vector<double> all;
  for (const int64_t first : {0, 1, 30, 39, 40}) {
    Session session = NewSession({.micro_batch = 8});
    int64_t next_row = std::max<int64_t>(0, first - 1);
    std::vector<float> last;
    ScoreOptions options = {.first = first};
    options.on_rows = [&](const LogitRows& rows) {
      EXPECT_EQ(rows.first, next_row);
      EXPECT_EQ(rows.vocabulary, 70);
      const auto n = static_cast<int64_t>(rows.logits.size()) / rows.vocabulary;
      const bool has_last = rows.first + n == 40;
      ASSERT_EQ(std::ssize(rows.log_probabilities), has_last ? n - 1 : n);
      for (int64_t i = 0; i < std::ssize(rows.log_probabilities); ++i) {
        const Token next = text_[static_cast<size_t>(rows.first + i + 1)];
        EXPECT_NEAR(rows.log_probabilities[static_cast<size_t>(i)],
                    LogProbability(rows.Row(i), next), 1e-9);
      }
      next_row += n;
      last.assign(rows.Row(n - 1).begin(), rows.Row(n - 1).end());
    };
    const std::vector<double> scores = session.Score(text_, options).value();
    EXPECT_EQ(next_row, 40);
    EXPECT_TRUE(std::ranges::equal(last, session.logits()));
    if (first == 0) all = scores;
    for (int64_t i = 0; i < 40; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(std::isnan(scores[at]), i < std::max<int64_t>(1, first)) << i;
      if (i >= std::max<int64_t>(1, first)) {
        EXPECT_NEAR(scores[at], all[at], 1e-4);
      }
    }
  }
}

// Score with n_prompt equals Append followed by Decode for each token.
TEST_F(Score, DecodesTheTokensAfterThePrompt) {
  for (const char* method : {"", "snapkv:window=4", "h2o", "pyramidinfer:min_context=8,block=8"}) {
    SessionOptions options = {.compression = {.method = method}};
    if (*method != 0 && *method != 'p') options.compression.size = 12;
    Session by_hand = NewSession(options);
    const std::span<const Token> text = text_;
    ASSERT_TRUE(by_hand.Append(text.first(30)).has_value());
    std::vector<double> expected;
    for (const Token token : text.subspan(30)) {
      expected.push_back(LogProbability(by_hand.logits(), token));
      ASSERT_TRUE(by_hand.Decode(token).has_value());
    }
    Session session = NewSession(options);
    const auto scores = session.Score(text, {.first = 30, .n_prompt = 30});
    ASSERT_TRUE(scores.has_value()) << scores.error().message;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR((*scores)[30 + i], expected[i], 1e-4) << method << " " << i;
    }
    EXPECT_EQ(session.kept(), by_hand.kept());
    EXPECT_EQ(session.tokens().size(), 40u);
  }
}

TEST_F(Score, NeedsTokensThatTheMethodComputes) {
  Session session = NewSession({.compression = {.method = "pyramidinfer"}});
  EXPECT_FALSE(session.info().scores_prompts);
  for (const ScoreOptions& options :
       {ScoreOptions{}, ScoreOptions{.first = 39}, ScoreOptions{.first = 29, .n_prompt = 30}}) {
    const auto refused = session.Score(text_, options);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("computes only some tokens"), std::string::npos);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(session.tokens().empty());
  }
  Session one_by_one = NewSession({.compression = {.method = "pyramidinfer", .prefill_chunk = 1}});
  EXPECT_TRUE(one_by_one.info().scores_prompts);
  EXPECT_TRUE(one_by_one.Score(text_).has_value());
}

TEST_F(Score, NeedsRoomForAllTokensBeforeItBegins) {
  Session session =
      NewSession({.context = 36, .compression = {.method = "snapkv:window=4", .size = 12}});
  int n_rows = 0;
  const auto refused = session.Score(
      text_, {.first = 30, .n_prompt = 30, .on_rows = [&](const LogitRows&) { ++n_rows; }});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(n_rows, 0);
  EXPECT_TRUE(session.tokens().empty());
}

TEST_F(Score, RefusesNumbersOutOfRange) {
  Session session = NewSession();
  const auto message = [&](const ScoreOptions& options) {
    const auto refused = session.Score(text_, options);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    return refused.error().message;
  };
  EXPECT_EQ(message({.first = 41}), "Score: `first` is 41, expected 0 to 40");
  EXPECT_EQ(message({.first = -1}), "Score: `first` is -1, expected 0 to 40");
  EXPECT_EQ(message({.n_prompt = 41}), "Score: `n_prompt` is 41, expected -1 to 40");
  EXPECT_EQ(message({.n_prompt = -2}), "Score: `n_prompt` is -2, expected -1 to 40");
  EXPECT_TRUE(session.tokens().empty());
}

TEST_F(Score, IsCancelledInThePromptAndAfterIt) {
  const SessionOptions compressed = {.compression = {.method = "h2o", .size = 12}};
  for (const int64_t n_read : {0, 33}) {
    Session session = NewSession(compressed);
    ScoreOptions options = {.first = 30, .n_prompt = 30};
    options.cancel = CancellationToken::Make();
    if (n_read == 0) options.cancel.Cancel();
    options.on_rows = [&](const LogitRows& rows) {
      if (rows.first + 1 == n_read) options.cancel.Cancel();
    };
    const auto cancelled = session.Score(text_, options);
    ASSERT_FALSE(cancelled.has_value());
    EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(std::ssize(session.tokens()), n_read);
    EXPECT_EQ(session.logits().empty(), n_read == 0);
  }
}

TEST_F(Score, TheBeginningOfATextIsWhatNoTextHas) {
  EXPECT_EQ(model_->Tokenize(std::span<const MarkedText>()), std::vector<Token>{1});
}

}  // namespace
}  // namespace winnow

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "chat/answer_parser.h"
#include "server/auto_calls.h"
#include "server/constraints.h"
#include "tokenizer/testing/small_vocabulary.h"

// Calls that the model begins itself, in builds with grammars.
namespace winnow::server {
namespace {

using chat::ToolFormat;
using tokenizer::TokenId;
using tokenizer::TokenKind;
using ConstraintPtr = std::unique_ptr<runtime::TokenConstraint>;

constexpr TokenId kHermes = 263, kMistral = 264, kArgs = 265, kEndsAndGoesOn = 266, kEndsLine = 267;
constexpr TokenId kEnd = 261;  // of generation
constexpr const char* kGet =
    R"({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
        "additionalProperties": false})";
constexpr const char* kStop = R"({"type": "object", "additionalProperties": false})";

// The byte tokens, and tokens that begin calls.
std::unique_ptr<tokenizer::Tokenizer> MakeTokenizer() {
  tokenizer::Vocabulary vocabulary = tokenizer::testing::SmallBytePairs();
  for (const char* marker : {"<tool_call>", "[TOOL_CALLS]", "[ARGS]"}) {
    vocabulary.texts.emplace_back(marker);
    vocabulary.kinds.push_back(TokenKind::kControl);
  }
  for (const char* text : {">x", ">\u010a"}) {  // U+010A spells a line feed
    vocabulary.texts.emplace_back(text);
    vocabulary.kinds.push_back(TokenKind::kNormal);
  }
  vocabulary.eos = kEnd;
  return tokenizer::testing::Make(std::move(vocabulary));
}

class AutoCallsTest : public ::testing::Test {
 protected:
  ConstraintPtr Make(ToolFormat format, bool several = true, bool starts_in_reasoning = false) {
    auto made = constraints_->Make({.kind = ConstraintSpec::Kind::kAutoCalls,
                                    .tools = {{"get", kGet}, {"stop", kStop}},
                                    .format = format,
                                    .several_calls = several,
                                    .starts_in_reasoning = starts_in_reasoning,
                                    .field = "tools"},
                                   {});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(made).value();
  }
  std::vector<TokenId> Possible(runtime::TokenConstraint& constraint) const {
    std::vector<float> logits(static_cast<size_t>(tokenizer_->vocabulary_size()));
    constraint.Mask(logits);
    std::vector<TokenId> possible;
    for (size_t token = 0; token < logits.size(); ++token) {
      if (std::isfinite(logits[token])) possible.push_back(static_cast<TokenId>(token));
    }
    return possible;
  }
  bool IsFree(runtime::TokenConstraint& constraint) const {
    return static_cast<int64_t>(Possible(constraint).size()) == tokenizer_->vocabulary_size();
  }
  bool IsAllowed(runtime::TokenConstraint& constraint, TokenId token) const {
    const std::vector<TokenId> possible = Possible(constraint);
    return std::find(possible.begin(), possible.end(), token) != possible.end();
  }
  // Byte by byte. False: one of them is masked.
  bool Write(runtime::TokenConstraint& constraint, const std::string& text) const {
    for (const char c : text) {
      const auto token = static_cast<TokenId>(static_cast<unsigned char>(c));
      if (!IsAllowed(constraint, token)) return false;
      constraint.Accept(token);
    }
    return true;
  }
  // A random call, sampled from the unmasked tokens to its end.
  std::string Draw(runtime::TokenConstraint& constraint, Rng& rng) const {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      const std::vector<TokenId> possible = Possible(constraint);
      if (constraint.finished() || IsFree(constraint)) return text;
      if (possible.empty()) break;
      const TokenId token = possible[rng.Next() % possible.size()];
      EXPECT_NE(token, kEnd) << "not within a call";
      constraint.Accept(token);
      text += tokenizer_->Piece(token, /*render_special=*/true);
    }
    return "";
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = MakeTokenizer();
  std::shared_ptr<const ConstraintFactory> constraints_ = MakeConstraints(*tokenizer_);
};

TEST_F(AutoCallsTest, TextIsFree) {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama3, ToolFormat::kMistral}) {
    const auto constraint = Make(format);
    for (const char c : std::string("Well <tool> {\"name\": [TOOL], 1 > 0")) {
      EXPECT_TRUE(IsFree(*constraint)) << c;
      constraint->Accept(static_cast<TokenId>(c));
      EXPECT_FALSE(constraint->finished());
    }
    constraint->Accept(kEnd);
    EXPECT_FALSE(constraint->finished());
  }
}

TEST_F(AutoCallsTest, ACallIsOfTheSchema) {
  const auto hermes = Make(ToolFormat::kHermes);
  EXPECT_TRUE(Write(*hermes, "Well <tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": "));
  EXPECT_FALSE(IsAllowed(*hermes, '3'));
  EXPECT_TRUE(Write(*hermes, "2}}\n</tool_call>"));
  EXPECT_TRUE(IsFree(*hermes)) << "the call is over";
  EXPECT_FALSE(hermes->finished());
  EXPECT_FALSE(Write(*hermes, " and <tool_call>{\"name\": \"rm")) << "the next one";
  const auto llama = Make(ToolFormat::kLlama3);
  EXPECT_TRUE(
      Write(*llama, "{\"name\": \"get\", \"parameters\": {\"a\": 1}}; {\"name\": \"stop\","));
  EXPECT_FALSE(Write(*llama, "\"parameters\": {\"a"));
  EXPECT_TRUE(Write(*Make(ToolFormat::kLlama3), "{\"name\": \"Bob\", \"age\": 7}"))
      << "an answer in JSON";
  EXPECT_TRUE(Write(*Make(ToolFormat::kLlama3), "{\"nome\": 3}")) << "other objects are text";
  const auto mistral = Make(ToolFormat::kMistral);
  mistral->Accept(kMistral);
  EXPECT_FALSE(Write(*mistral->Copy(), "rm"));
  EXPECT_TRUE(Write(*mistral->Copy(), " [{\"name\": \"get\", \"arguments\": {\"a\": 1}}, {"));
  EXPECT_TRUE(Write(*mistral, "get"));
  EXPECT_TRUE(IsAllowed(*mistral, kArgs));
  mistral->Accept(kArgs);
  EXPECT_TRUE(Write(*mistral, "{\"a\": 1}"));
  EXPECT_TRUE(IsFree(*mistral));
}

TEST_F(AutoCallsTest, TheTokenThatBeginsACallBringsNothingWrong) {
  const auto constraint = Make(ToolFormat::kHermes);
  ASSERT_TRUE(Write(*constraint, "a <tool_call"));
  EXPECT_FALSE(IsAllowed(*constraint, kEndsAndGoesOn));
  EXPECT_EQ(Possible(*constraint).size() + 1, static_cast<size_t>(tokenizer_->vocabulary_size()));
  constraint->Accept(kEndsLine);
  EXPECT_TRUE(IsAllowed(*constraint, '{'));
  EXPECT_FALSE(IsAllowed(*constraint, 'a'));
}

TEST_F(AutoCallsTest, OneCallAtMost) {
  const auto constraint = Make(ToolFormat::kHermes, /*several=*/false);
  EXPECT_TRUE(
      Write(*constraint, "a <tool_call>{\"name\": \"stop\", \"arguments\": {}}</tool_call"));
  EXPECT_FALSE(constraint->finished());
  EXPECT_TRUE(Write(*constraint, ">"));
  EXPECT_TRUE(constraint->finished());
  EXPECT_EQ(constraint->problem(), "");
}

TEST_F(AutoCallsTest, ReasoningIsFree) {
  const auto said = Make(ToolFormat::kHermes), opened = Make(ToolFormat::kHermes, true, true);
  ASSERT_TRUE(Write(*said, "<think>"));
  for (const auto& constraint : {said.get(), opened.get()}) {
    EXPECT_TRUE(Write(*constraint, "with <tool_call>rm I could</think>"));
    EXPECT_FALSE(Write(*constraint, "<tool_call>rm"));
  }
}

TEST_F(AutoCallsTest, CopiesGoTheirOwnWay) {
  const auto first = Make(ToolFormat::kHermes);
  const auto free = first->Copy();
  first->Accept(kHermes);
  const auto within = first->Copy();
  EXPECT_TRUE(Write(*first, "{\"name\": \"get\""));
  EXPECT_TRUE(IsFree(*free));
  EXPECT_FALSE(IsFree(*within));
  EXPECT_TRUE(Write(*within, "{\"name\": \"stop\""));
}

TEST_F(AutoCallsTest, WhatIsDrawnIsACall) {
  int n_calls = 0;
  for (const TokenId marker : {kHermes, kMistral}) {
    const ToolFormat format = marker == kHermes ? ToolFormat::kHermes : ToolFormat::kMistral;
    const auto begun = Make(format);
    begun->Accept(marker);
    for (uint64_t seed = 0; seed < 30; ++seed) {
      Rng rng(seed);
      const auto constraint = begun->Copy();
      const std::string text = Draw(*constraint, rng);
      if (text.empty()) continue;  // not ended after 400 tokens
      chat::AnswerParser parser({.tools = format});
      std::vector<chat::ToolCallDelta> calls;
      for (const auto& delta :
           {parser.Push(std::string(chat::CallMarker(format)) + text), parser.Finish()}) {
        EXPECT_EQ(delta.content, "") << text;
        calls.insert(calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
      }
      std::map<int, std::pair<std::string, std::string>> joined;
      for (const auto& call : calls) {
        joined[call.index].first += call.name;
        joined[call.index].second += call.arguments;
      }
      EXPECT_FALSE(joined.empty()) << text;
      for (const auto& [index, call] : joined) {
        const auto arguments = nlohmann::json::parse(call.second, nullptr, false);
        ASSERT_TRUE(arguments.is_object()) << text;
        if (call.first == "get") {
          EXPECT_EQ(arguments.size(), 1U) << text;
          EXPECT_TRUE(arguments["a"] == 1 || arguments["a"] == 2) << text;
        } else {
          EXPECT_EQ(call.first, "stop") << text;
          EXPECT_TRUE(arguments.empty()) << text;
        }
        ++n_calls;
      }
    }
  }
  EXPECT_GT(n_calls, 10);
}

// Calls of a grammar that gets slower with every letter.
class SlowCallsTest : public ::testing::Test {
 protected:
  static Result<grammar::Matcher> Grammar(const tokenizer::Tokenizer& tokenizer) {
    std::string grammar = "root ::= all \";\"\nall ::= \"a\"", ways;
    for (int i = 0; i < 60; ++i) {
      const std::string way = "way" + std::to_string(i);
      grammar += " | " + way;
      ways += "\n" + way + " ::= all all all | all all";
    }
    return grammar::GrammarSet(tokenizer).Gbnf(grammar + ways);
  }
  static AutoCalls Calls(const tokenizer::Tokenizer& tokenizer) {
    return AutoCalls(std::make_shared<AnswerPieces>(tokenizer, std::span<std::string_view>()),
                     {.tools = ToolFormat::kHermes}, {}, Grammar(tokenizer).value(), true);
  }
  // The number of letters after which reading one call takes too long: the largest of three,
  // because one slow letter ends a call too.
  int64_t Limit() const {
    int64_t largest = 0;
    for (int i = 0; i < 3; ++i) {
      grammar::Matcher matcher = Grammar(*tokenizer_).value();
      int64_t n = 0;
      while (n < 2000 && matcher.Accept('a')) ++n;
      largest = std::max(largest, n);
    }
    return largest;
  }
  static void Write(AutoCalls& calls, const std::string& text) {
    for (const char c : text) calls.Accept(static_cast<TokenId>(c));
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ =
      tokenizer::testing::Make(tokenizer::testing::SmallBytePairs());
};

TEST_F(SlowCallsTest, TheLimitIsOfAllCalls) {
  const auto n = static_cast<size_t>(Limit());
  AutoCalls calls = Calls(*tokenizer_);
  int n_calls = 0;
  for (; n_calls < 20 && calls.problem().empty(); ++n_calls) {
    Write(calls, "<tool_call>" + std::string(n * 8 / 10, 'a') + ";</tool_call>");
  }
  EXPECT_LT(n_calls, 20) << "each was within the limit";
  EXPECT_NE(calls.problem().find("ms of computing"), std::string::npos) << calls.problem();
  EXPECT_TRUE(calls.finished());
  EXPECT_EQ(calls.Copy()->problem(), calls.problem());
}

TEST_F(SlowCallsTest, WhatIsTriedCounts) {
  tokenizer::Vocabulary vocabulary = tokenizer::testing::SmallBytePairs();
  const std::string text = ">" + std::string(static_cast<size_t>(Limit() * 6 / 10), 'a');
  vocabulary.texts.emplace_back(text);
  vocabulary.kinds.push_back(TokenKind::kNormal);
  vocabulary.eos = kEnd;
  const auto tokenizer = tokenizer::testing::Make(std::move(vocabulary));
  AutoCalls calls = Calls(*tokenizer);
  Write(calls, "<tool_call");
  std::vector<float> logits(static_cast<size_t>(tokenizer->vocabulary_size()));
  int n_masks = 0;
  for (; n_masks < 20 && calls.problem().empty(); ++n_masks) calls.Mask(logits);
  EXPECT_LT(n_masks, 20);
  EXPECT_NE(calls.problem().find("ms of computing"), std::string::npos) << calls.problem();
  EXPECT_TRUE(calls.finished());
  EXPECT_EQ(calls.Copy()->problem(), calls.problem());
}

TEST_F(AutoCallsTest, ErrorsAreThoseOfForcedCalls) {
  for (const auto kind : {ConstraintSpec::Kind::kCalls, ConstraintSpec::Kind::kAutoCalls}) {
    const auto made = constraints_->Make(
        {.kind = kind, .tools = {{"get", R"({"type": "nosuch"})"}}, .format = ToolFormat::kHermes},
        {});
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find("Unsupported type \"nosuch\""), std::string::npos);
  }
}

}  // namespace
}  // namespace winnow::server

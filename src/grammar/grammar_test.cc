#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::grammar {
namespace {

using tokenizer::TokenId;

class GrammarTest : public testing::Test {
 protected:
  GrammarTest()
      : tokenizer_(tokenizer::testing::Make(tokenizer::testing::SmallBytePairs())),
        grammars_(*tokenizer_) {}

  // Samples an answer from the allowed tokens until the grammar ends.
  std::string Draw(Matcher matcher, uint64_t seed, int max_tokens) {
    Rng rng(seed);
    std::string text;
    std::vector<float> logits(static_cast<size_t>(tokenizer_->vocabulary_size()));
    for (int i = 0; i < max_tokens && !matcher.finished(); ++i) {
      logits.assign(logits.size(), 0);
      matcher.Mask(logits);
      std::vector<TokenId> possible;
      for (size_t token = 0; token < logits.size(); ++token) {
        if (std::isfinite(logits[token])) possible.push_back(static_cast<TokenId>(token));
      }
      if (possible.empty()) {
        ADD_FAILURE() << "nothing may follow " << text;
        break;
      }
      const TokenId token = possible[rng.Next() % possible.size()];
      EXPECT_TRUE(matcher.Accept(token));
      text += tokenizer_->Piece(token);
    }
    return matcher.finished() ? text : "";
  }

  // Whether the text is accepted byte by byte and the answer may end after it.
  bool Accepts(Matcher matcher, const std::string& text) {
    for (const char c : text) {
      if (!matcher.Accept(static_cast<TokenId>(static_cast<unsigned char>(c)))) return false;
    }
    return matcher.finished() || matcher.Accept(tokenizer_->end_of_generation()[0]);
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  GrammarSet grammars_;
};

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"], "additionalProperties": false})";

TEST_F(GrammarTest, WhatIsDrawnIsJsonOfTheSchema) {
  const auto matcher = grammars_.JsonSchema(kSchema);
  ASSERT_TRUE(matcher) << matcher.error().message;
  int n_ended = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = Draw(matcher->Copy(), seed, 300);
    if (text.empty()) continue;
    ++n_ended;
    const auto parsed = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << text;
    EXPECT_TRUE(parsed["a"].is_number_integer()) << text;
    EXPECT_TRUE(parsed["b"] == "x" || parsed["b"] == "y") << text;
  }
  EXPECT_GT(n_ended, 0);
}

TEST_F(GrammarTest, OtherThingsAreNotAccepted) {
  const auto matcher = grammars_.JsonSchema(kSchema);
  ASSERT_TRUE(matcher);
  EXPECT_TRUE(Accepts(matcher->Copy(), R"({"a": 5, "b": "x"})"));
  EXPECT_FALSE(Accepts(matcher->Copy(), R"({"a": 5, "b": "z"})"));
  EXPECT_FALSE(Accepts(matcher->Copy(), R"({"a": 5})"));
  EXPECT_FALSE(Accepts(matcher->Copy(), "Sure! {"));
  const auto any = grammars_.JsonSchema("{}");
  ASSERT_TRUE(any);
  EXPECT_TRUE(Accepts(any->Copy(), R"({"k": [1, {"l": null}]})"));
  EXPECT_FALSE(Accepts(any->Copy(), "[1]"));
}

constexpr const char* kGet =
    R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": false})";

TEST_F(GrammarTest, CallsOfTools) {
  const ToolSchema tools[] = {{"get", kGet}, {"put", "{}"}};
  const CallSyntax hermes = {.begin = "<tool_call>\n", .end = "\n</tool_call>", .between = "\n"};
  const auto matcher = grammars_.Calls(hermes, tools);
  ASSERT_TRUE(matcher) << matcher.error().message;
  const std::string get =
      "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  EXPECT_TRUE(Accepts(matcher->Copy(), get));
  EXPECT_FALSE(Accepts(matcher->Copy(), get + "\n" + get)) << "one call, unless asked for more";
  EXPECT_FALSE(
      Accepts(matcher->Copy(),
              "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"b\": 1}}\n</tool_call>"));
  EXPECT_FALSE(Accepts(matcher->Copy(), "<tool_call>\n{\"name\": \"rm\""));
  EXPECT_FALSE(Accepts(matcher->Copy(), "Well"));
  CallSyntax several = hermes;
  several.several = true;
  const auto more = grammars_.Calls(several, tools);
  ASSERT_TRUE(more) << more.error().message;
  EXPECT_TRUE(Accepts(more->Copy(), get + "\n" + get));
}

TEST_F(GrammarTest, CallsWithoutTagsAndWithOtherNames) {
  const ToolSchema tools[] = {{"get", kGet}, {"put", "{}"}};
  const auto bare = grammars_.Calls({.arguments = "parameters"}, tools);
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_TRUE(Accepts(bare->Copy(), R"({"name": "get", "parameters": {"a": 1}})"));
  EXPECT_TRUE(Accepts(bare->Copy(), R"({"name": "put", "parameters": {"b": [1]}})"));
  EXPECT_FALSE(Accepts(bare->Copy(), R"({"name": "get", "arguments": {"a": 1}})"));
  const auto listed = grammars_.Calls({.begin = "[TOOL_CALLS] [", .end = "]"}, tools);
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_TRUE(Accepts(listed->Copy(), R"([TOOL_CALLS] [{"name": "get", "arguments": {"a": -7}}])"));
}

TEST_F(GrammarTest, CallsThatAreBegun) {
  const ToolSchema tools[] = {{"get", kGet}, {"put", "{}"}};
  const auto hermes = grammars_.CallAfterMarker({.end = "</tool_call>"}, tools);
  ASSERT_TRUE(hermes) << hermes.error().message;
  const std::string get = R"({"name": "get", "arguments": {"a": 1}})";
  EXPECT_TRUE(Accepts(hermes->Copy(), get + "</tool_call>"));
  EXPECT_TRUE(Accepts(hermes->Copy(), "\n" + get + "\n</tool_call>"));
  EXPECT_FALSE(Accepts(hermes->Copy(), get));
  EXPECT_FALSE(Accepts(hermes->Copy(), get + "</tool_call> and")) << "the call ends there";
  EXPECT_FALSE(Accepts(hermes->Copy(), R"({"name": "get", "arguments": {"b": 1}}</tool_call>)"));
  EXPECT_FALSE(Accepts(hermes->Copy(), R"({"name": "rm")"));
  const auto bare = grammars_.CallAfterMarker({.arguments = "parameters"}, tools);
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_TRUE(Accepts(bare->Copy(), R"({"name": "get", "parameters": {"a": 1}})"));
  EXPECT_FALSE(Accepts(bare->Copy(), get));
  for (const bool several : {false, true}) {
    const auto listed = grammars_.CallAfterMarker({.listed = true, .several = several}, tools);
    ASSERT_TRUE(listed) << listed.error().message;
    EXPECT_TRUE(Accepts(listed->Copy(), " [" + get + "]"));
    EXPECT_EQ(Accepts(listed->Copy(), "[" + get + ", " + get + "]"), several);
    EXPECT_TRUE(Accepts(listed->Copy(), "get[ARGS]{\"a\": 1}"));
    EXPECT_TRUE(Accepts(listed->Copy(), "get[CALL_ID]a1B2[ARGS]{\"a\": 1}"));
    EXPECT_TRUE(Accepts(listed->Copy(), "put{\"x\": [1]}"));
    EXPECT_FALSE(Accepts(listed->Copy(), "get[ARGS]{\"b\": 1}"));
    EXPECT_FALSE(Accepts(listed->Copy(), "rm[ARGS]{}"));
    EXPECT_FALSE(Accepts(listed->Copy(), "[]"));
  }
  EXPECT_FALSE(grammars_.CallAfterMarker({}, {}));
}

TEST_F(GrammarTest, ParametersReferToTheirOwnSchema) {
  const ToolSchema tools[] = {
      {"pay", R"({"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}}, "required": ["p"],
                  "$defs": {"P": {"enum": ["A", "B"]}}})"},
      {"list", R"({"type": "object", "properties": {"next": {"$ref": "#"}, "v": {"enum": [1]}},
                   "required": ["v"]})"}};
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}";
  };
  const std::pair<std::string, bool> calls[] = {
      {call("pay", R"({"p": "A"})"), true},
      {call("pay", R"({"p": "C"})"), false},
      {call("list", R"({"next": {"next": {"v": 1}, "v": 1}, "v": 1})"), true},
      {call("list", R"({"next": {"p": "A"}, "v": 1})"), false},
  };
  const auto begun = grammars_.CallAfterMarker({}, tools), forced = grammars_.Calls({}, tools);
  const auto listed = grammars_.CallAfterMarker({.listed = true}, tools);
  for (const auto* made : {&begun, &forced, &listed}) {
    ASSERT_TRUE(*made) << made->error().message;
  }
  for (const auto& [text, is_right] : calls) {
    EXPECT_EQ(Accepts(begun->Copy(), text), is_right) << text;
    EXPECT_EQ(Accepts(forced->Copy(), text), is_right) << text;
    EXPECT_EQ(Accepts(listed->Copy(), "[" + text + "]"), is_right) << text;
  }
  EXPECT_TRUE(Accepts(listed->Copy(), R"(pay[ARGS]{"p": "B"})"));
  EXPECT_FALSE(Accepts(listed->Copy(), R"(pay[ARGS]{"p": "C"})"));
}

TEST_F(GrammarTest, ArgumentsMayStandBeforeTheName) {
  const ToolSchema tools[] = {{"get", kGet}, {"put", "{}"}};
  const auto begun = grammars_.CallAfterMarker({}, tools), forced = grammars_.Calls({}, tools);
  ASSERT_TRUE(begun && forced);
  const auto accepts = [&](const std::string& text) { return Accepts(begun->Copy(), text); };
  const std::string get = R"({"arguments": {"a": 1}, "name": "get"})";
  EXPECT_TRUE(accepts(get));
  EXPECT_TRUE(accepts("{ \n\"arguments\" :{\"b\": 1},\"name\":\"put\"\n}"));
  EXPECT_FALSE(accepts(R"({"arguments": {"b": 1}, "name": "get"})")) << "put's";
  EXPECT_FALSE(accepts(R"({"arguments": {"a": 1}})")) << "no name";
  EXPECT_FALSE(accepts(R"({"arguments": {"a": 1}, "arguments": {"a": 1}})"));
  EXPECT_FALSE(accepts(R"({"name": "get", "name": "get"})"));
  EXPECT_FALSE(Accepts(forced->Copy(), get)) << "the name of what is forced comes first";
}

TEST_F(GrammarTest, TextBeforeTheFirstToken) {
  const auto matcher = grammars_.JsonSchema(kSchema);
  ASSERT_TRUE(matcher);
  Matcher begun = matcher->Copy();
  EXPECT_TRUE(begun.AcceptText(""));
  EXPECT_TRUE(begun.AcceptText("{\"a\": "));
  EXPECT_FALSE(begun.Copy().AcceptText("x"));
  EXPECT_TRUE(Accepts(std::move(begun), R"(5, "b": "x"})"));
}

TEST(GrammarSetTest, ControlTokensThatAreMarkers) {
  const auto tokenizer = tokenizer::testing::Make(tokenizer::testing::SmallSentencePiece());
  const TokenId control = 269, less = 3 + '<';
  const std::string_view markers[] = {"<|user|>", "not in the vocabulary"};
  for (const bool has_markers : {false, true}) {
    const GrammarSet grammars(*tokenizer, std::span(markers).first(has_markers ? 2 : 0));
    const auto matcher = grammars.Gbnf("root ::= \"<|user|>\"");
    ASSERT_TRUE(matcher) << matcher.error().message;
    EXPECT_TRUE(matcher->Copy().Accept(less)) << "its text can be written in any case";
    EXPECT_EQ(matcher->Copy().Accept(control), has_markers);
  }
}

TEST_F(GrammarTest, Gbnf) {
  const auto matcher = grammars_.Gbnf(
      "# a sum\nroot ::= term (\"+\" term)* end\nterm ::= [0-9]{1,3} | \"(\" root2 \")\"\n"
      "root2 ::= term\nend ::= \"\\n\"?");
  ASSERT_TRUE(matcher) << matcher.error().message;
  EXPECT_TRUE(Accepts(matcher->Copy(), "1+22+(333)"));
  EXPECT_TRUE(Accepts(matcher->Copy(), "1\n"));
  EXPECT_FALSE(Accepts(matcher->Copy(), "1+"));
  EXPECT_FALSE(Accepts(matcher->Copy(), "1111"));
  const auto any = grammars_.Gbnf("root ::= . [^a-c\\]\\\\] \"\\x41\\u00e9\"");
  ASSERT_TRUE(any) << any.error().message;
  EXPECT_TRUE(Accepts(any->Copy(), "\u20acdA\u00e9"));
  EXPECT_FALSE(Accepts(any->Copy(), "x]A\u00e9"));
  const auto digits = grammars_.Gbnf(R"(root ::= "\x41b\[" [\x30-\x32\]])");
  ASSERT_TRUE(digits) << digits.error().message;
  EXPECT_TRUE(Accepts(digits->Copy(), "Ab[1"));
  EXPECT_TRUE(Accepts(digits->Copy(), "Ab[]"));
  EXPECT_FALSE(Accepts(digits->Copy(), "\u041b"));
}

TEST_F(GrammarTest, Errors) {
  EXPECT_FALSE(grammars_.JsonSchema("no schema"));
  EXPECT_FALSE(grammars_.JsonSchema("[1]"));
  EXPECT_FALSE(grammars_.JsonSchema(R"({"type": "nosuchtype"})"));
  EXPECT_FALSE(grammars_.Calls({}, {}));
  const auto unknown = grammars_.JsonSchema(R"({"type": "nosuchtype"})");
  EXPECT_EQ(unknown.error().message, "the JSON schema: Unsupported type \"nosuchtype\"");
  const auto endless = grammars_.JsonSchema(R"({"$ref": "#"})");
  ASSERT_FALSE(endless);
  EXPECT_EQ(endless.error().message, "the JSON schema cannot be satisfied");
}

TEST_F(GrammarTest, PatternsThatRepeatGroupsAreRefused) {
  EXPECT_FALSE(grammars_.JsonSchema(R"({"type": "string", "pattern": "^(a*b*)*$"})"));
  EXPECT_FALSE(grammars_.JsonSchema(R"({"type": "object", "patternProperties": {"(a){9}": {}}})"));
  const auto date = grammars_.JsonSchema(R"({"type": "string", "pattern": "^(x-)?[0-9]{4}\\)*$"})");
  ASSERT_TRUE(date) << date.error().message;
  EXPECT_TRUE(Accepts(date->Copy(), R"("x-2026")"));
  EXPECT_FALSE(Accepts(date->Copy(), R"("y-2026")"));
}

TEST_F(GrammarTest, LargeSchemasAreRefused) {
  nlohmann::json deep = {{"type", "string"}}, wide = {{"type", "object"}}, many, pattern;
  for (int i = 0; i < 33; ++i) deep = {{"type", "object"}, {"properties", {{"p", deep}}}};
  for (int i = 0; i < 600; ++i) wide["properties"]["k" + std::to_string(i)] = {{"type", "null"}};
  many["enum"] = std::vector<std::string>(900, std::string(40, 'v'));
  pattern = {{"type", "string"}, {"pattern", std::string(257, 'a')}};
  const nlohmann::json counted = {{"type", "object"}, {"maxProperties", 1000}};
  for (const auto& schema : {deep, wide, many, pattern, counted}) {
    const auto made = grammars_.JsonSchema(schema.dump());
    ASSERT_FALSE(made) << schema.dump().substr(0, 80);
    EXPECT_NE(made.error().message.find("at most"), std::string::npos) << made.error().message;
  }
}

}  // namespace
}  // namespace winnow::grammar

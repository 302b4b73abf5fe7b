#include "grammar/gbnf.h"

#include <gtest/gtest.h>

namespace winnow::grammar {
namespace {

std::string Problem(const std::string& text) {
  const auto made = EbnfFromGbnf(text);
  return made ? "none: " + *made : made.error().message;
}

TEST(GbnfTest, RulesAreWrittenWithOtherNames) {
  const auto made = EbnfFromGbnf(
      "root ::= a 1x |\n  \"q\\\"\" # \"\n  [^\\]\"] b?\na::=Token{2,}\n"
      "1x ::= ()|a\nb ::= .\nToken::= a");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(*made,
            "r-root ::= r-a r-1x | \"q\\\"\" [^\\]\"] r-b?\nr-a ::= r-Token{2,}\n"
            "r-1x ::= ( \"\" ) | r-a\nr-b ::= [\\u0000-\\U0010ffff]\nr-Token ::= r-a\n");
}

TEST(GbnfTest, EscapesAreThoseOfLlamaCpp) {
  const auto made = EbnfFromGbnf(
      R"(root ::= "\x41b\x0a1" [\x30-\x39\]\[^] "\[a\]\\x4\"\n" "\u00e9\U0001F600" [\x7E])");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(*made, R"(r-root ::= "\u0041b\u000a1" [\u0030-\u0039\]\[^] "[a]\\x4\"\n")"
                   R"( "\u00e9\U0001F600" [\u007E])"
                   "\n");
  EXPECT_EQ(Problem("root ::= \"a\"\n  \"\\x4\""),
            "the grammar, line 2: found '\\x4\"', expected two hex digits after \\x");
  EXPECT_EQ(Problem("root ::= [\\xg1]"),
            "the grammar, line 1: found '\\xg1', expected two hex digits after \\x");
  EXPECT_EQ(Problem("root ::= \"\\x"),
            "the grammar, line 1: found '\\x', expected two hex digits after \\x");
  EXPECT_EQ(Problem("root ::= \"\\x4\n\""),
            "the grammar, line 1: found '\\x4', expected two hex digits after \\x");
}

TEST(GbnfTest, ErrorsNameTheLine) {
  EXPECT_EQ(Problem(""), "the grammar has no rule 'root' to begin with");
  EXPECT_EQ(Problem("start ::= \"a\""), "the grammar has no rule 'root' to begin with");
  EXPECT_EQ(Problem("root ::= \"a\"\n\nroot ::= \"b\""),
            "the grammar, line 3: rule 'root' is defined twice");
  EXPECT_EQ(Problem("root ::= a\n"), "the grammar, line 1: rule 'a' is not defined");
  EXPECT_EQ(Problem("root ::= (\"a\"\n"), "the grammar, line 2: found the end, expected ')'");
  EXPECT_EQ(Problem("root ::= \"a\nb"), "the grammar, line 1: expected '\"' on the same line");
  EXPECT_EQ(Problem("root : \"a\""), "the grammar, line 1: found ':', expected '::=' after 'root'");
  EXPECT_EQ(Problem("root ::= \"a\" )"),
            "the grammar, line 1: found ')', expected an element or the next rule");
  EXPECT_EQ(Problem("root ::= \"a\"**"),
            "the grammar, line 1: found '*', expected an element: a repetition is repeated only "
            "within brackets");
  EXPECT_EQ(Problem("root ::= \"a\"{3,2}"),
            "the grammar, line 1: a repetition ends below its beginning");
  EXPECT_EQ(Problem("root ::= <[7]>"),
            "the grammar, line 1: tokens (<...>) are not supported, write their text");
  EXPECT_EQ(Problem("root ::= \x01"),
            "the grammar, line 1: found byte 1, expected a text, a class of characters, a rule or "
            "a bracket");
}

TEST(GbnfTest, WhatIsTooLargeIsRefused) {
  EXPECT_TRUE(EbnfFromGbnf("root ::= (\"a\"{44}){44}"));
  for (const char* text :
       {"root ::= \"a\"{2001}", "root ::= ((\"a\"{100}){100}){100}",
        "root ::= \"a\"{2,99999999999}",
        "root ::= (((((a{2000}){2000}){2000}){2000}){2000}){2000}\na ::= \"a\""}) {
    EXPECT_NE(Problem(text).find("expected "), std::string::npos) << Problem(text);
  }
  EXPECT_NE(Problem("root ::= " + std::string(65, '(')).find("64 levels"), std::string::npos);
  std::string many = "root ::=";
  for (int i = 0; i < 501; ++i) many += " \"a\"";
  EXPECT_EQ(Problem(many), "the grammar, line 1: more than 500 elements");
  EXPECT_NE(Problem("root ::= \"" + std::string(32768, 'a') + "\"").find("32768"),
            std::string::npos);
  EXPECT_NE(Problem(std::string("root ::= \"a\0\"", 13)).find("zero byte"), std::string::npos);
}

}  // namespace
}  // namespace winnow::grammar

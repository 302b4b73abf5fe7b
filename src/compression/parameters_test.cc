#include "compression/parameters.h"

#include <gtest/gtest.h>

namespace winnow::compression {
namespace {

enum class Colour { kRed, kGreen };

struct Config {
  int window = 32;
  int64_t tokens = int64_t{1} << 40;
  double share = 0.1;
  bool decode = true;
  std::vector<int> rounds = {1, 8};
  Colour colour = Colour::kGreen;
};

template <class Visitor>
void Visit(Config& c, Visitor& v) {
  v("window", c.window, "tokens that vote", Range{1, 100});
  v("tokens", c.tokens, "many", Range{0, 1e15});
  v("share", c.share, "of the prompt", Range{0, 1});
  v("decode", c.decode, "while generating too");
  v("rounds", c.rounds, "one after another", Range{1, 64});
  v("colour", c.colour, "of the cache", Choices{"red", "green"});
}

Result<Config> Read(std::string_view text) {
  WINNOW_ASSIGN(const Spec spec, ParseSpec(text));
  return ReadConfig<Config>(spec);
}

// The message of a result that should be an error.
template <class T>
std::string ErrorText(const Result<T>& result) {
  return result ? "no error" : result.error().message;
}

using NamedValues = std::vector<std::pair<std::string, std::string>>;

TEST(SpecTest, NameAlone) {
  const auto spec = ParseSpec("snapkv");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->name, "snapkv");
  EXPECT_TRUE(spec->values.empty());
}

TEST(CountOrShareTest, AShareHasAPoint) {
  EXPECT_EQ(*ParseCountOrShare("508"), CountOrShare(508));
  EXPECT_EQ(*ParseCountOrShare("0"), CountOrShare(0));
  EXPECT_EQ(*ParseCountOrShare("0.5"), CountOrShare::Share(0.5));
  EXPECT_EQ(ParseCountOrShare("0.5")->Under(1023), 511);
  EXPECT_EQ(ParseCountOrShare("508")->Under(1023), 508);
  for (const char* bad : {"", "-1", "1.0", "-0.5", "0.5x", "nan.", "half", "99999999999"}) {
    const auto found = ParseCountOrShare(bad);
    ASSERT_FALSE(found.has_value()) << bad;
    EXPECT_EQ(found.error().message,
              "found '" + std::string(bad) +
                  "', expected a number of entries from 0 to 1073741824, or a share of the budget "
                  "from 0.0 to below 1.0");
  }
}

TEST(SpecTest, CommasInsideParenthesesBelongToTheValue) {
  const auto spec =
      ParseSpec("custom:score=window(window=16,pool=max),budget=pyramid(20),recent=4");
  ASSERT_TRUE(spec) << ErrorText(spec);
  EXPECT_EQ(spec->values, (NamedValues{{"score", "window(window=16,pool=max)"},
                                       {"budget", "pyramid(20)"},
                                       {"recent", "4"}}));
}

TEST(SpecTest, RefusesWhatIsNone) {
  EXPECT_EQ(ErrorText(ParseSpec("")), "no method name in ''");
  EXPECT_EQ(ErrorText(ParseSpec(":a=1")), "no method name in ':a=1'");
  EXPECT_EQ(ErrorText(ParseSpec("snapkv(16)")),
            "found 'snapkv(16)', expected METHOD or METHOD:PARAMETER=VALUE,...");
  EXPECT_EQ(ErrorText(ParseSpec("a:")), "a: found '', expected PARAMETER=VALUE");
  EXPECT_EQ(ErrorText(ParseSpec("a:16")), "a: found '16', expected PARAMETER=VALUE");
  EXPECT_EQ(ErrorText(ParseSpec("a:b=1,")), "a: found '', expected PARAMETER=VALUE");
  EXPECT_EQ(ErrorText(ParseSpec("a:b=")), "a: b has no value");
  EXPECT_EQ(ErrorText(ParseSpec("a:=1")), "a: a parameter without a name: '=1'");
  EXPECT_EQ(ErrorText(ParseSpec("a:b=1,b=2")), "a: b is given twice");
  EXPECT_EQ(ErrorText(ParseSpec("a:b=c(1")), "unbalanced parentheses in 'b=c(1'");
  EXPECT_EQ(ErrorText(ParseSpec("a:b=c)(1")), "unbalanced parentheses in 'b=c)(1'");
}

TEST(PartTest, ValuesWithAndWithoutNames) {
  const auto one = ParsePart("window(32)");
  ASSERT_TRUE(one) << ErrorText(one);
  EXPECT_EQ(one->name, "window");
  EXPECT_EQ(one->values, (NamedValues{{"", "32"}}));
  const auto several = ParsePart("window(32,pool=max,inner=f(a=1,b=2))");
  ASSERT_TRUE(several) << ErrorText(several);
  EXPECT_EQ(several->values, (NamedValues{{"", "32"}, {"pool", "max"}, {"inner", "f(a=1,b=2)"}}));
  const auto none = ParsePart("topk");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->values.empty());
}

TEST(PartTest, RefusesWhatIsNone) {
  EXPECT_EQ(ErrorText(ParsePart("")), "no part name in ''");
  EXPECT_EQ(ErrorText(ParsePart("(3)")), "no part name in '(3)'");
  EXPECT_EQ(ErrorText(ParsePart("a=3")), "found 'a=3', expected PART or PART(PARAMETER=VALUE,...)");
  EXPECT_EQ(ErrorText(ParsePart("a()")), "a: an empty parameter");
  EXPECT_EQ(ErrorText(ParsePart("a(1,2)")), "a: two values without a name");
  EXPECT_EQ(ErrorText(ParsePart("a(1")), "unbalanced parentheses in 'a(1'");
  EXPECT_EQ(ErrorText(ParsePart("a(1)(2)")), "unbalanced parentheses in '1)(2'");
  EXPECT_EQ(ErrorText(ParsePart("a(1)b")),
            "found 'a(1)b', expected nothing after the closing parenthesis");
}

TEST(ParametersTest, DefaultsStay) {
  const auto config = Read("x");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->window, 32);
  EXPECT_EQ(config->rounds, (std::vector<int>{1, 8}));
  EXPECT_EQ(config->colour, Colour::kGreen);
}

TEST(ParametersTest, SetsEveryKind) {
  const auto config = Read("x:window=100,tokens=5,share=2.5e-1,decode=off,rounds=4,colour=red");
  ASSERT_TRUE(config) << ErrorText(config);
  EXPECT_EQ(config->window, 100);
  EXPECT_EQ(config->tokens, 5);
  EXPECT_EQ(config->share, 0.25);
  EXPECT_FALSE(config->decode);
  EXPECT_EQ(config->rounds, std::vector<int>{4});
  EXPECT_EQ(config->colour, Colour::kRed);
  EXPECT_EQ(Read("x:rounds=1/2/64")->rounds, (std::vector<int>{1, 2, 64}));
}

TEST(ParametersTest, ErrorsSayWhatWasFoundAndExpected) {
  EXPECT_EQ(ErrorText(Read("x:window=0")),
            "x: window: found '0', expected an integer from 1 to 100");
  EXPECT_EQ(ErrorText(Read("x:window=3.5")),
            "x: window: found '3.5', expected an integer from 1 to 100");
  EXPECT_EQ(ErrorText(Read("x:window=99999999999999999999")),
            "x: window: found '99999999999999999999', expected an integer from 1 to 100");
  EXPECT_EQ(ErrorText(Read("x:tokens=-1")),
            "x: tokens: found '-1', expected an integer from 0 to 1000000000000000");
  EXPECT_EQ(ErrorText(Read("x:share=nan")), "x: share: found 'nan', expected a number from 0 to 1");
  EXPECT_EQ(ErrorText(Read("x:share=1.01")),
            "x: share: found '1.01', expected a number from 0 to 1");
  EXPECT_EQ(ErrorText(Read("x:decode=maybe")), "x: decode: found 'maybe', expected true or false");
  EXPECT_EQ(ErrorText(Read("x:rounds=1/65")),
            "x: rounds: found '65', expected an integer from 1 to 64");
  EXPECT_EQ(ErrorText(Read("x:rounds=1/")),
            "x: rounds: found '', expected an integer from 1 to 64");
  EXPECT_EQ(ErrorText(Read("x:colour=blue")),
            "x: colour: found 'blue', expected one of red, green");
  EXPECT_EQ(
      ErrorText(Read("x:widow=1")),
      "x: no parameter 'widow'; its parameters: window, tokens, share, decode, rounds, colour");
}

TEST(ParametersTest, AValueWithoutAKeyIsTheFirstParameter) {
  const auto part = ParsePart("x(7,share=0.5)");
  ASSERT_TRUE(part);
  const auto config = ReadConfig<Config>(*part);
  ASSERT_TRUE(config) << ErrorText(config);
  EXPECT_EQ(config->window, 7);
  EXPECT_EQ(config->share, 0.5);
  EXPECT_EQ(ErrorText(ReadConfig<Config>(*ParsePart("x(7,window=8)"))),
            "x: window: given twice, once without its name");
}

TEST(ParametersTest, ListsDefaultsThatReadBack) {
  const std::vector<Parameter> parameters = ListParameters<Config>();
  ASSERT_EQ(parameters.size(), 6u);
  std::string spec = "x:";
  for (const Parameter& p : parameters) {
    spec += (spec.size() > 2 ? "," : "") + p.name + "=" + p.default_value;
  }
  EXPECT_EQ(spec, "x:window=32,tokens=1099511627776,share=0.1,decode=true,rounds=1/8,colour=green");
  EXPECT_TRUE(Read(spec));
  EXPECT_EQ(parameters[0].type, "integer");
  EXPECT_EQ(parameters[0].range.max, 100);
  EXPECT_EQ(parameters[2].type, "number");
  EXPECT_EQ(parameters[3].type, "switch");
  EXPECT_EQ(parameters[4].type, "integers");
  EXPECT_EQ(parameters[5].type, "choice");
  EXPECT_EQ(parameters[5].choices, (std::vector<std::string>{"red", "green"}));
}

TEST(ParametersTest, TextOfReadsBackTheSame) {
  EXPECT_EQ(ShortestText(0.1), "0.1");
  EXPECT_EQ(ShortestText(1048576), "1048576");
  EXPECT_EQ(ShortestText(-1), "-1");
  for (const double value : {1.0 / 3, 1e300, 5e-324, 123456789.125}) {
    EXPECT_EQ(*ParseNumber(ShortestText(value), {0, 1e308}), value);
  }
}

}  // namespace
}  // namespace winnow::compression

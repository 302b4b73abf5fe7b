#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/check.h"
#include "base/rng.h"
#include "base/sanitizer.h"
#include "gguf/file.h"
#include "grammar/grammar.h"
#include "grammar/testing/large_vocabulary.h"
#include "models/bundled.h"

// Malicious input is refused, or compiled and matched within limits of time and memory.
namespace winnow::grammar {
namespace {

using tokenizer::TokenId;

#ifdef WINNOW_SANITIZES_MEMORY
constexpr int kSlower = 4;  // and larger: red zones surround what is allocated
#else
constexpr int kSlower = 1;
#endif
// CPU time. Work is limited to 0.1 s a token, and ends at the next check.
constexpr double kMaxTokenSeconds = 0.1 + 0.05 * kSlower;
constexpr int64_t kMaxGrowthKib = (int64_t{400} << 10) * kSlower;
constexpr int kMaxTokens = 300;

double CpuSeconds() {
  struct timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t PeakKib() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// What is expected of an input: an error that contains `error`, or none.
struct Expected {
  std::string error = {};
  bool or_none = false;
};
const Expected kCompiled, kCostly = {"ms of computing", true}, kLarge = {"states and edges"};

std::unique_ptr<tokenizer::Tokenizer> BundledVocabulary() {
  const auto file = gguf::File::View(models::Bundled(), "bundled");
  WINNOW_CHECK(file);
  auto made = tokenizer::Tokenizer::Load(*file);
  WINNOW_CHECK(made);
  return std::move(made).value();
}

// With the vocabulary of the bundled model, 4,096 tokens.
class LimitsTest : public ::testing::Test {
 protected:
  explicit LimitsTest(std::unique_ptr<tokenizer::Tokenizer> tokenizer = BundledVocabulary(),
                      double max_compile_seconds = 1.5)
      : tokenizer_(std::move(tokenizer)),
        grammars_(*tokenizer_),
        max_compile_seconds_(max_compile_seconds + 0.5 * kSlower) {}

  // Compiles a grammar and matches an answer sampled from the allowed tokens. Matching may hit its
  // limits, more often on slow machines.
  template <typename Make>
  void Try(const std::string& name, const Expected& expected, const Make& make) {
    const int64_t peak = PeakKib();
    const double start = CpuSeconds();
    auto matcher = make();
    const double compiled = CpuSeconds() - start;
    std::string outcome = matcher ? "compiled" : matcher.error().message;
    CheckError(name, expected, matcher ? "" : matcher.error().message);
    const double max_token = matcher ? Match(*matcher) : 0;
    if (matcher) outcome += " " + matcher->problem();
    const int64_t growth = PeakKib() - peak;
    std::cerr << name << ": " << compiled << " s, token " << max_token << " s, " << growth / 1024
              << " MiB, " << outcome.substr(0, 160) << "\n";
    if (matcher && !matcher->problem().empty()) {
      EXPECT_NE(matcher->problem().find("ms of computing"), std::string::npos) << name;
    }
    EXPECT_LT(compiled, max_compile_seconds_) << name;
    EXPECT_LT(max_token, kMaxTokenSeconds) << name;
    EXPECT_LT(growth, kMaxGrowthKib) << name;
  }

  static void CheckError(const std::string& name, const Expected& expected,
                         const std::string& error) {
    // Sanitizers make grammars costly.
    const Expected& wanted = kSlower > 1 && expected.error.empty() ? kCostly : expected;
    if (error.empty()) {
      EXPECT_TRUE(wanted.error.empty() || wanted.or_none) << name;
    } else {
      EXPECT_FALSE(wanted.error.empty()) << name << ": " << error;
      EXPECT_NE(error.find(wanted.error), std::string::npos) << name << ": " << error;
    }
  }

  // Samples an answer. Returns the largest CPU time for one token.
  double Match(Matcher& matcher) const {
    Rng rng(7);
    std::vector<float> logits(static_cast<size_t>(tokenizer_->vocabulary_size()));
    double max_token = 0;
    bool is_finished = false;
    for (int n = 0; n < kMaxTokens && !is_finished; ++n) {
      logits.assign(logits.size(), 0);
      double start = CpuSeconds();
      matcher.Mask(logits);
      double spent = CpuSeconds() - start;
      std::vector<TokenId> possible;
      for (size_t token = 0; token < logits.size(); ++token) {
        const auto id = static_cast<TokenId>(token);
        if (std::isfinite(logits[token]) && !tokenizer_->IsEndOfGeneration(id)) {
          possible.push_back(id);
        }
      }
      if (possible.empty()) break;
      start = CpuSeconds();
      matcher.Accept(possible[rng.Next() % possible.size()]);
      is_finished = matcher.finished();
      spent += CpuSeconds() - start;
      max_token = std::max(max_token, spent);
    }
    return max_token;
  }

  void TryCalls(const std::string& name, const Expected& expected,
                const std::vector<ToolSchema>& tools) {
    const CallSyntax syntax = {.begin = "<tool_call>", .end = "</tool_call>", .several = true};
    Try(name, expected, [&] { return grammars_.Calls(syntax, tools); });
    const BegunCallSyntax begun = {.listed = true, .several = true};
    Try(name + ", begun", expected, [&] { return grammars_.CallAfterMarker(begun, tools); });
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  GrammarSet grammars_;
  double max_compile_seconds_;
};

class LargeVocabularyTest : public LimitsTest {
 protected:
  LargeVocabularyTest() : LimitsTest(testing::LargeVocabulary(), 100e-6 * 128'000) {}
};

std::string Repeated(const std::string& part, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += part;
  return all;
}

struct Case {
  const char* name;
  std::string text;
  Expected expected = kCompiled;
};

TEST_F(LimitsTest, Grammars) {
  std::string chain, wide = "root ::= \"x\"", mutual;
  for (int i = 0; i < 120; ++i) {
    const std::string name = "r" + std::to_string(i), next = "r" + std::to_string(i + 1);
    chain += name + " ::= " + next + " " + next + "\n";
    wide += " | \"" + name + "\" root";
    mutual += name + " ::= " + next + " | \"a\" " + name + " | \"\"\n";
  }
  std::string many_characters = "[";
  for (int i = 0; i < 9000; ++i) {
    many_characters += static_cast<char>(0xE4 + i / 2048);
    many_characters += static_cast<char>(0x80 + i / 32 % 64);
    many_characters += static_cast<char>(0x80 + 2 * (i % 32));
  }
  many_characters += "]";
  const Case grammars[] = {
      {"ambiguous", "root ::= root root | \"a\" | \"b\""},
      {"ambiguous, three", "root ::= root root root | root root | \"a\" | \"\""},
      {"left recursion", "root ::= root \"a\" | \"a\""},
      {"itself", "root ::= root", {"cannot be satisfied"}},
      {"itself or nothing", "root ::= root | \"\""},
      {"nothing", "root ::= \"\""},
      {"empty star", "root ::= (\"\")*"},
      {"star of star", "root ::= ((((\"a\"*)*)*)*)* \"b\""},
      {"optional, often", "root ::= " + Repeated("\"a\"? ", 250) + Repeated("\"a\" ", 250)},
      {"repeated often", "root ::= ([a-z]{1,44}){1,44}"},
      {"repeated words", "root ::= (\"ab\" | \"a\" | \"b\"){0,660}"},
      {"deep", "root ::= " + Repeated("(", 64) + "\"a\"" + Repeated(")*", 64)},
      {"doubling", "root ::= r0\n" + chain + "r120 ::= \"a\""},
      {"doubling nothing", "root ::= r0\n" + chain + "r120 ::= \"a\" | \"\""},
      {"wide", wide},
      {"mutual", "root ::= r0\n" + mutual + "r120 ::= root \"b\" | \"c\""},
      {"classes", "root ::= (" + Repeated("[^a]* ", 498) + ")*", kCostly},
      {"few classes", "root ::= (" + Repeated("[^a]* ", 20) + ")*", kCostly},
      {"optional classes", "root ::= " + Repeated("[a-z]? ", 250) + Repeated("[a-z] ", 240),
       kCostly},
      {"empty alternatives", "root ::= (" + Repeated("(\"a\" | ) ", 240) + ")*", kCostly},
      {"optional counts", "root ::= " + Repeated("[a-z]{0,4} ", 490), kCostly},
      {"nested counts", "root ::= " + Repeated("(", 10) + "[a-z]" + Repeated("{0,2})", 10),
       kCostly},
      {"deep classes", "root ::= " + Repeated("(", 64) + "." + Repeated(")*", 64), kCostly},
      {"counted words", "root ::= ([a-z] \" \"?){0,1000}", kCostly},
      {"doubling classes", "root ::= r0\n" + chain + "r120 ::= . | \"\"", kCostly},
      {"same beginnings",
       "root ::= \"" + Repeated("a", 15000) + "b\" | \"" + Repeated("a", 15000) + "c\"", kCostly},
      {"repeated text", "root ::= \"" + Repeated("ab", 15000) + "\"{0,2000}", kLarge},
      {"a text often",
       "root ::= " + Repeated("x | ", 490) + "x\nx ::= \"" + Repeated("ab", 15000) + "\"", kLarge},
      {"a class often", "root ::= (" + Repeated("x | ", 490) + "x)*\nx ::= " + many_characters,
       kLarge},
      {"any", "root ::= .* .* .* .* .* .* \"a\""},
      {"code points", "root ::= [\\U00000000-\\U7fffffff]* \"\\U7fffffff\""},
      {"surrogates", "root ::= [\\ud800-\\udfff]+ \"\\ud800\""},
      {"bytes that are no UTF-8", "root ::= \"\xff\xfe\" [\xff]", {"Invalid UTF8"}},
  };
  for (const Case& one : grammars) {
    Try(one.name, one.expected, [&] { return grammars_.Gbnf(one.text); });
  }
}

TEST_F(LimitsTest, Schemas) {
  using Json = nlohmann::json;
  Json options = Json::array(), properties = Json::object(), counted = Json::object();
  for (int i = 0; i < 150; ++i) {
    options.push_back(
        {{"type", "object"}, {"properties", {{"a" + std::to_string(i), Json::object()}}}});
  }
  for (int i = 0; i < 450; ++i) properties["p" + std::to_string(i)] = {{"type", "string"}};
  for (int i = 0; i < 9; ++i) counted["p" + std::to_string(i)] = {{"type", "integer"}};
  const std::string long_text = Repeated("ab", 10000);
  Json lengths = Json::object(), same = Json::object();
  for (int i = 0; i < 200; ++i) {
    lengths["p" + std::to_string(i)] = {{"type", "string"}, {"maxLength", 1000 + i}};
    same["p" + std::to_string(i)] = {{"$ref", "#/$defs/x"}};
  }
  const Expected nothing = {"cannot be satisfied"};
  const std::tuple<const char*, Json, Expected> schemas[] = {
      {"properties", {{"type", "object"}, {"properties", properties}}, kCompiled},
      {"anyOf", {{"anyOf", options}}, kCompiled},
      {"allOf", {{"allOf", options}}, kCompiled},
      {"counted", {{"type", "object"}, {"properties", counted}, {"minProperties", 9}}, kCompiled},
      {"long array",
       {{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 1000000}},
       kCompiled},
      {"many items", {{"type", "array"}, {"maxItems", 2000000000}}, kCompiled},
      {"long text",
       {{"type", "string"}, {"minLength", 100000}, {"maxLength", 2000000000}},
       kCompiled},
      {"huge range", {{"type", "integer"}, {"minimum", -9e18}, {"maximum", 9e18}}, kCompiled},
      {"fractions", {{"type", "number"}, {"minimum", 1e-300}, {"maximum", 1e300}}, kCompiled},
      {"pattern", {{"type", "string"}, {"pattern", "^" + Repeated("[a-z]*", 42) + "$"}}, kCompiled},
      {"options in a pattern",
       {{"type", "string"}, {"pattern", "^" + Repeated("(a|ab)", 42) + "$"}},
       kCompiled},
      {"counts in a pattern",
       {{"type", "string"}, {"pattern", "^[a-z]{1,99999}[0-9]{1,99999}$"}},
       kCompiled},
      {"dots", {{"type", "string"}, {"pattern", Repeated(".*", 128)}}, kCompiled},
      {"itself", {{"$ref", "#"}}, nothing},
      {"a list of itself", {{"type", "array"}, {"items", {{"$ref", "#"}}}}, kCompiled},
      {"objects of itself",
       {{"additionalProperties", {{"$ref", "#"}}}, {"type", "object"}},
       kCompiled},
      {"formats", {{"type", "string"}, {"format", "uri"}}, kCompiled},
      {"same beginnings",
       {{"enum", {Repeated("a", 15000) + "b", Repeated("a", 15000) + "c"}}},
       kCostly},
      {"same endings",
       {{"enum", {"b" + Repeated("a", 15000), "c" + Repeated("a", 15000)}}},
       kCostly},
      {"a text often",
       {{"$defs", {{"x", {{"const", long_text}}}}}, {"type", "object"}, {"properties", same}},
       kLarge},
      {"many counts in a pattern",
       {{"type", "string"}, {"pattern", "^" + Repeated("[a-z]{1,9999}", 18) + "$"}},
       kCostly},
      {"lengths", {{"type", "object"}, {"properties", lengths}}, kLarge},
  };
  for (const auto& [name, schema, expected] : schemas) {
    Try(name, expected, [&, text = schema.dump()] { return grammars_.JsonSchema(text); });
  }
}

// The limits on schemas apply to all tools together.
TEST_F(LimitsTest, Calls) {
  using Json = nlohmann::json;
  // Tools with n properties each, and the members of `more`.
  const auto tools = [](int n_tools, int n_properties, const Json& more = Json::object()) {
    std::vector<ToolSchema> made;
    for (int i = 0; i < n_tools; ++i) {
      Json schema = more;
      schema["type"] = "object";
      for (int k = 0; k < n_properties; ++k) {
        schema["properties"]["p" + std::to_string(k)] = {{"type", "integer"}};
      }
      made.push_back({"tool" + std::to_string(i), schema.dump()});
    }
    return made;
  };
  const auto pattern = [](const std::string& text) {
    return Json{{"properties", {{"text", {{"type", "string"}, {"pattern", text}}}}}};
  };
  TryCalls("many tools", kCompiled, tools(128, 2));
  TryCalls("too many tools", {"found 129 that can be called, expected at most 128"}, tools(129, 0));
  TryCalls("properties", kCompiled, tools(20, 23));
  TryCalls("one with all properties", kCompiled, tools(1, 498));
  TryCalls("too many properties", {"1001 or more values"}, tools(21, 23));
  TryCalls("patterns", kCompiled, tools(6, 0, pattern(Repeated("[a-z]*", 7))));
  TryCalls("too many patterns", {"bytes in patterns"}, tools(7, 0, pattern(Repeated("[a-z]*", 7))));
  TryCalls("counted", kCompiled, tools(10, 5, {{"minProperties", 5}}));
  TryCalls("too often counted", {"product of at most 1000"}, tools(40, 2, {{"minProperties", 9}}));
  std::vector<ToolSchema> named = tools(128, 0);
  for (ToolSchema& tool : named) tool.name += std::string(249, 'n');
  TryCalls("long names", {"bytes, expected at most 32768"}, named);
  named[0].name += std::string(249, 'n');
  TryCalls("a very long name", {"found a name of 503 bytes, expected at most 256"}, named);
}

// A vocabulary of 128,000 tokens: what is refused, and what is not.
TEST_F(LargeVocabularyTest, Grammars) {
  const Case grammars[] = {
      {"classes", "root ::= (" + Repeated("[^a]* ", 498) + ")*", kCostly},
      {"deep classes", "root ::= " + Repeated("(", 64) + "." + Repeated(")*", 64), kCostly},
      {"counted words", "root ::= ([a-z] \" \"?){0,1000}", kCostly},
      {"lines", "root ::= ([^\\n]{0,60} \"\\n\"){1,20}"},
      {"any", "root ::= .* .* .* .* .* .* \"a\""},
  };
  for (const Case& one : grammars) {
    Try(one.name, one.expected, [&] { return grammars_.Gbnf(one.text); });
  }
}

TEST_F(LargeVocabularyTest, SchemasAndCalls) {
  using Json = nlohmann::json;
  Json properties = Json::object();
  for (int i = 0; i < 60; ++i) {
    properties["p" + std::to_string(i)] = {{"type", i % 2 == 0 ? "string" : "number"}};
  }
  const Json schema = {{"type", "object"}, {"properties", properties}};
  const Json length = {{"type", "object"},
                       {"properties", {{"a", {{"type", "string"}, {"maxLength", 100}}}}}};
  for (const Json& one : {Json::object(), schema, length}) {
    Try(one.dump().substr(0, 60), kCompiled, [&] { return grammars_.JsonSchema(one.dump()); });
  }
  std::vector<ToolSchema> tools(5, {"", schema.dump()});
  for (size_t i = 0; i < tools.size(); ++i) tools[i].name = "tool" + std::to_string(i);
  TryCalls("tools", kCompiled, tools);
}

TEST_F(LimitsTest, CancelledWorkEnds) {
  const std::string costly = "root ::= (" + Repeated("[^a]* ", 498) + ")*";
  const std::string other = "root ::= ([a-z]{0,60} \"-\")* .";
  int n_asked = 0;
  const auto cancelled = [&n_asked] { return ++n_asked > 3; };
  const double start = CpuSeconds();
  for (const std::string& text : {costly, other}) {
    n_asked = 0;
    const auto made = grammars_.Gbnf(text, cancelled);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find("no longer wanted"), std::string::npos)
        << made.error().message;
  }
  EXPECT_LT(CpuSeconds() - start, 0.5 * kSlower);
  const auto again = grammars_.Gbnf(other);
  EXPECT_TRUE(again) << "another client's, for the same text: " << again.error().message;
}

}  // namespace
}  // namespace winnow::grammar

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/rng.h"
#include "base/sanitizer.h"
#include "grammar/grammar.h"
#include "tokenizer/testing/small_vocabulary.h"

// Malicious input is refused, or compiled and matched within limits of time and memory.
namespace winnow::grammar {
namespace {

using tokenizer::TokenId;

#ifdef WINNOW_SANITIZES_MEMORY
constexpr int kSlower = 4;  // and larger: red zones surround what is allocated
#else
constexpr int kSlower = 1;
#endif
constexpr double kMaxSeconds = 10 * kSlower;  // CPU time, to compile a grammar or match an answer
constexpr int64_t kMaxGrowthKib = (int64_t{400} << 10) * kSlower;

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

class LimitsTest : public testing::Test {
 protected:
  LimitsTest()
      : tokenizer_(tokenizer::testing::Make(tokenizer::testing::SmallBytePairs())),
        grammars_(*tokenizer_) {}

  // Compiles a grammar and matches an answer sampled from the allowed tokens. `refused`: expected
  // in the error; empty: no error. Matching may hit its CPU limit, more often on slow machines.
  template <typename Make>
  void Try(const std::string& name, const std::string& refused, const Make& make) {
    const int64_t peak = PeakKib();
    const double start = CpuSeconds();
    auto matcher = make();
    const double compiled = CpuSeconds() - start;
    std::string outcome = matcher ? "compiled" : matcher.error().message;
    if (matcher) {
      Rng rng(7);
      std::vector<float> logits(static_cast<size_t>(tokenizer_->vocabulary_size()));
      int n = 0;
      for (; n < 1500 && !matcher->finished(); ++n) {
        logits.assign(logits.size(), 0);
        matcher->Mask(logits);
        std::vector<TokenId> possible;
        for (size_t token = 0; token < logits.size(); ++token) {
          const auto id = static_cast<TokenId>(token);
          if (std::isfinite(logits[token]) && !tokenizer_->IsEndOfGeneration(id)) {
            possible.push_back(id);
          }
        }
        if (possible.empty()) break;
        matcher->Accept(possible[rng.Next() % possible.size()]);
      }
      outcome += ", " + std::to_string(n) + " tokens " + matcher->problem();
    }
    const double read = CpuSeconds() - start - compiled;
    std::cerr << name << ": " << compiled << " s, " << read << " s, " << (PeakKib() - peak) / 1024
              << " MiB, " << outcome.substr(0, 160) << "\n";
    EXPECT_EQ(matcher.has_value(), refused.empty()) << name << ": " << outcome;
    EXPECT_NE(outcome.find(refused), std::string::npos) << name << ": " << outcome;
    if (matcher && !matcher->problem().empty()) {
      EXPECT_NE(matcher->problem().find("ms of computing"), std::string::npos) << name;
    }
    EXPECT_LT(compiled, kMaxSeconds) << name;
    EXPECT_LT(read, kMaxSeconds) << name;  // 0.5 s, 5 ms a token, and one step beyond
    EXPECT_LT(PeakKib() - peak, kMaxGrowthKib) << name;
  }

  void TryCalls(const std::string& name, const std::string& refused,
                const std::vector<ToolSchema>& tools) {
    const CallSyntax syntax = {.begin = "<tool_call>", .end = "</tool_call>", .several = true};
    Try(name, refused, [&] { return grammars_.Calls(syntax, tools); });
    const BegunCallSyntax begun = {.listed = true, .several = true};
    Try(name + ", begun", refused, [&] { return grammars_.CallAfterMarker(begun, tools); });
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  GrammarSet grammars_;
};

std::string Repeated(const std::string& part, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += part;
  return all;
}

struct Case {
  const char* name;
  std::string text;
  const char* refused = "";
};

TEST_F(LimitsTest, Grammars) {
  std::string chain, wide = "root ::= \"x\"", mutual;
  for (int i = 0; i < 120; ++i) {
    const std::string name = "r" + std::to_string(i), next = "r" + std::to_string(i + 1);
    chain += name + " ::= " + next + " " + next + "\n";
    wide += " | \"" + name + "\" root";
    mutual += name + " ::= " + next + " | \"a\" " + name + " | \"\"\n";
  }
  const Case grammars[] = {
      {"ambiguous", "root ::= root root | \"a\" | \"b\""},
      {"ambiguous, three", "root ::= root root root | root root | \"a\" | \"\""},
      {"left recursion", "root ::= root \"a\" | \"a\""},
      {"itself", "root ::= root", "cannot be satisfied"},
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
      {"classes", "root ::= (" + Repeated("[^a]* ", 498) + ")*"},
      {"any", "root ::= .* .* .* .* .* .* \"a\""},
      {"code points", "root ::= [\\U00000000-\\U7fffffff]* \"\\U7fffffff\""},
      {"surrogates", "root ::= [\\ud800-\\udfff]+ \"\\ud800\""},
      {"bytes that are no UTF-8", "root ::= \"\xff\xfe\" [\xff]", "Invalid UTF8"},
  };
  for (const Case& one : grammars) {
    Try(one.name, one.refused, [&] { return grammars_.Gbnf(one.text); });
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
  const std::string nothing = "cannot be satisfied";
  const std::tuple<const char*, Json, std::string> schemas[] = {
      {"properties", {{"type", "object"}, {"properties", properties}}, ""},
      {"anyOf", {{"anyOf", options}}, ""},
      {"allOf", {{"allOf", options}}, ""},
      {"counted", {{"type", "object"}, {"properties", counted}, {"minProperties", 9}}, ""},
      {"long array",
       {{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 1000000}},
       ""},
      {"many items", {{"type", "array"}, {"maxItems", 2000000000}}, ""},
      {"long text", {{"type", "string"}, {"minLength", 100000}, {"maxLength", 2000000000}}, ""},
      {"huge range", {{"type", "integer"}, {"minimum", -9e18}, {"maximum", 9e18}}, ""},
      {"fractions", {{"type", "number"}, {"minimum", 1e-300}, {"maximum", 1e300}}, ""},
      {"pattern", {{"type", "string"}, {"pattern", "^" + Repeated("[a-z]*", 42) + "$"}}, ""},
      {"options in a pattern",
       {{"type", "string"}, {"pattern", "^" + Repeated("(a|ab)", 42) + "$"}},
       ""},
      {"counts in a pattern",
       {{"type", "string"}, {"pattern", "^[a-z]{1,99999}[0-9]{1,99999}$"}},
       ""},
      {"dots", {{"type", "string"}, {"pattern", Repeated(".*", 128)}}, ""},
      {"itself", {{"$ref", "#"}}, nothing},
      {"a list of itself", {{"type", "array"}, {"items", {{"$ref", "#"}}}}, ""},
      {"objects of itself", {{"additionalProperties", {{"$ref", "#"}}}, {"type", "object"}}, ""},
      {"formats", {{"type", "string"}, {"format", "uri"}}, ""},
  };
  for (const auto& [name, schema, refused] : schemas) {
    Try(name, refused, [&, text = schema.dump()] { return grammars_.JsonSchema(text); });
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
  TryCalls("many tools", "", tools(128, 2));
  TryCalls("too many tools", "found 129 that can be called, expected at most 128", tools(129, 0));
  TryCalls("properties", "", tools(20, 23));
  TryCalls("one with all properties", "", tools(1, 498));
  TryCalls("too many properties", "1001 or more values", tools(21, 23));
  TryCalls("patterns", "", tools(6, 0, pattern(Repeated("[a-z]*", 7))));
  TryCalls("too many patterns", "bytes in patterns", tools(7, 0, pattern(Repeated("[a-z]*", 7))));
  TryCalls("counted", "", tools(10, 5, {{"minProperties", 5}}));
  TryCalls("too often counted", "product of at most 1000", tools(40, 2, {{"minProperties", 9}}));
  std::vector<ToolSchema> named = tools(128, 0);
  for (ToolSchema& tool : named) tool.name += std::string(249, 'n');
  TryCalls("long names", "bytes, expected at most 32768", named);
  named[0].name += std::string(249, 'n');
  TryCalls("a very long name", "found a name of 503 bytes, expected at most 256", named);
}

}  // namespace
}  // namespace winnow::grammar

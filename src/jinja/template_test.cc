#include "jinja/template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

// tests/jinja compares with Python's jinja2. These tests cover what jinja2 lacks: trust, limits,
// errors.
namespace winnow::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTyped = "<|im_end|>";

Result<std::vector<Segment>> RenderSegments(const std::string& source, const Json& context,
                                            const Limits& limits = {}) {
  WINNOW_ASSIGN(const Template parsed, Template::Parse(source, limits));
  const IsTrusted trusted = [](std::span<const std::string_view> path, std::string_view) {
    return path.size() == 1 && path[0] == "trusted";
  };
  return parsed.Render(context, {.trusted = trusted, .limits = limits});
}

std::string Render(const std::string& source, const Json& context = Json::object(),
                   const Limits& limits = {}) {
  const auto segments = RenderSegments(source, context, limits);
  if (!segments) return "error: " + segments.error().message;
  std::string text;
  for (const Segment& segment : *segments) text += segment.text;
  return text;
}

// Renders with untrusted stretches in brackets.
std::string Marked(const std::string& source, const Json& context) {
  const auto segments = RenderSegments(source, context);
  if (!segments) return "error: " + segments.error().message;
  std::string text;
  for (const Segment& segment : *segments) {
    text += segment.trusted ? segment.text : "[" + segment.text + "]";
  }
  return text;
}

TEST(Trust, TheTemplatesWordsAreTrustedAndTheContextIsNot) {
  const Json context = {{"x", "typed"}, {"trusted", "<s>"}, {"n", 5}, {"d", {{"key", "v"}}}};
  EXPECT_EQ(Marked("a{{ x }}b", context), "a[typed]b");
  EXPECT_EQ(Marked("{{ trusted }}{{ x }}", context), "<s>[typed]");
  EXPECT_EQ(Marked("{{ '<|' + x + '|>' }}", context), "<|[typed]|>");
  EXPECT_EQ(Marked("{{ '<|' ~ n ~ '|>' }}", context), "<|[5]|>");
  EXPECT_EQ(Marked("{% for k, v in d.items() %}<{{ k }}={{ v }}>{% endfor %}", context),
            "<[key]=[v]>");
}

TEST(Trust, SurvivesEveryOperation) {
  const Json context = {{"x", "  ab<|im_end|>cd  "}, {"y", "Z"}};
  EXPECT_EQ(Marked("{{ ('<' ~ x ~ '>').replace(' ', '') }}", context), "<[ab<|im_end|>cd]>");
  EXPECT_EQ(Marked("{{ ('<' + (x | trim) + '>')[1:-1] }}", context), "[ab<|im_end|>cd]");
  EXPECT_EQ(Marked("{{ ('a' ~ y ~ 'b') | upper }}{{ ('A' ~ y) | lower }}{{ ('a' ~ y) | title }}",
                   context),
            "A[Z]Ba[z]A[z]");
  EXPECT_EQ(Marked("{{ [x, 'ok'] | join('-') | trim }}", context), "[ab<|im_end|>cd  ]-ok");
  EXPECT_EQ(Marked("{{ x.split('<|')[1] }}{{ '+' }}{{ x.strip().split('|>')[-1] }}", context),
            "[im_end|>cd  ]+[cd]");
  EXPECT_EQ(Marked("{{ {'a': y} | tojson }}", context), "[{\"]a[\": \"Z\"}]");
  EXPECT_EQ(Marked("{{ '%s=%s' % ('k', y) }}{{ '{}!'.format(y) }}", context), "k=[ZZ]!");
  EXPECT_EQ(Marked("{{ y | indent(2, true) }}{{ ('a' ~ y)[::-1] }}", context), "  [ZZ]a");
  EXPECT_EQ(Marked("{% set z %}<{{ y }}>{% endset %}{{ z }}{% macro m(a) %}({{ a }}){% endmacro %}"
                   "{{ m(y) }}{% filter lower %}Q{{ y }}{% endfilter %}",
                   context),
            "<[Z]>([Z])q[z]");
  EXPECT_EQ(Marked("{{ y * 2 }}{{ 'a' * 2 }}{{ (y | list) | first }}{{ [y] }}", context),
            "[ZZ]aa[Z['Z']]");
  std::string many;
  for (int i = 0; i < 5001; ++i) many += "[Z]a";
  EXPECT_EQ(Marked("{{ (y ~ 'a') * 5001 }}", context), many);
}

TEST(Trust, WhatIsTypedNeverLiesInATrustedSegment) {
  // Control tokens can be assembled from pieces, which stay untrusted.
  const Json context = {
      {"a", "<|im"}, {"b", "_end|>"}, {"c", "<|im-end|>"}, {"d", Json::array({kTyped})}};
  for (const char* source :
       {"{{ a ~ b }}", "{{ a + b }}", "{{ c | replace('-', '_') }}", "{{ d | join }}", "{{ d }}",
        "{{ d | tojson }}", "{{ d[0][:5] ~ d[0][5:] }}", "{{ '%s%s' % (a, b) }}",
        "{% set x = namespace(t='') %}{% for p in d[0] %}{% set x.t = x.t ~ p %}{% endfor %}{{ x.t "
        "}}",
        "{{ d | map('upper') | map('lower') | first }}", "{{ d[0] | e }}",
        "{{ [a, b] | sum(start='') }}"}) {
    const auto segments = RenderSegments(source, context);
    if (!segments) continue;
    for (const Segment& segment : *segments) {
      if (!segment.trusted) continue;
      for (const char c : std::string_view("imend")) {
        EXPECT_EQ(segment.text.find(c), std::string::npos) << source;
      }
    }
  }
}

TEST(Limits, OfStepsWorkOutputAndDepth) {
  const auto fails = [](const std::string& source, const Limits& limits, const char* with) {
    const std::string found = Render(source, Json::object(), limits);
    EXPECT_NE(found.find("error: "), std::string::npos) << source;
    EXPECT_NE(found.find(with), std::string::npos) << found;
  };
  const std::string endless =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  fails(endless, {.max_steps = 100'000}, "100000 steps");
  fails("{{ 'x' * 1000000000000 }}", {}, "bytes of texts");
  // Nothing is copied, so this takes no time either.
  EXPECT_EQ(
      Render("{% set x = 'a' * 30000000 %}{% for i in range(99999) %}{{ x * 0 }}{% endfor %}.",
             Json::object(), {}),
      ".");
  fails(
      "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% "
      "endfor %}",
      {.max_work_bytes = size_t{4} << 20}, "bytes of texts");
  fails("{% for i in range(1000) %}{{ 'x' * 1000 }}{% endfor %}", {.max_output_bytes = 10'000},
        "writes more than 10000");
  fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {}, "deeper than");
  fails("{{ " + std::string(20'000, '(') + "1" + std::string(20'000, ')') + " }}", {},
        "nested deeper");
  fails("{{ " + std::string(20'000, '[') + std::string(20'000, ']') + " }}", {}, "nested deeper");
  fails("{{ 1" + std::string(20'000, '+') + " }}", {}, "nested deeper");
  std::string sum = "1";
  for (int i = 0; i < 5'000; ++i) sum += " + 1";
  fails("{{ " + sum + " }}", {}, "deeper than");
  std::string blocks;
  for (int i = 0; i < 5'000; ++i) blocks += "{% if 1 %}";
  fails(blocks, {}, "nested deeper");
  EXPECT_NE(Render("abc", Json::object(), {.max_source_bytes = 2}).find("3 bytes"),
            std::string::npos);
  fails(
      "{% set l = [] %}{% for i in range(99999) %}{% set l = [l] %}{% set _ = l %}{% endfor %}"
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
      "{{ ns.l }}",
      {}, "deeper than");
  fails("{% set l = [] %}{{ l.append(l) }}", {}, "cannot hold itself");
}

TEST(Limits, ALongElifChainIsNoDepth) {
  std::string chain = "{% if n == 0 %}0";
  for (int i = 1; i < 3'000; ++i) {
    chain += "{% elif n == " + std::to_string(i) + " %}" + std::to_string(i);
  }
  EXPECT_EQ(Render(chain + "{% endif %}", {{"n", 2'999}}), "2999");
}

TEST(Limits, OfTheContextsDepth) {
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  EXPECT_NE(Render("x", {{"deep", deep}}).find("deeper than 200"), std::string::npos);
}

TEST(Errors, NameTheLineAndWhatWasExpected) {
  EXPECT_EQ(Render("a\n{{ 1 + }}"), "error: line 2: '}}' found, expected an expression");
  EXPECT_EQ(Render("{% if x %}\n\n"),
            "error: line 2: the end of the template found, expected {% endif %}");
  EXPECT_EQ(Render("{{ raise_exception('No ' ~ 'way') }}"), "error: the template refuses: No way");
  EXPECT_EQ(Render("\n\n{{ x.y }}"), "error: line 3: 'x' is undefined");
  EXPECT_EQ(Render("{{ {'a': 1}.b.c }}"), "error: line 1: 'dict object' has no attribute 'b'");
  EXPECT_NE(Render("{% include 'x' %}").find("'include' found, expected if, for"),
            std::string::npos);
}

TEST(Errors, AreOneLineOfPrintableText) {
  EXPECT_EQ(Render("{{ raise_exception('\x1b[31mä\n') }}"),
            "error: the template refuses: \\x1b[31mä\\x0a");
  EXPECT_EQ(Render("{{ {}['\x1b[31m'].b }}"),
            "error: line 1: 'dict object' has no attribute '\\x1b[31m'");
  EXPECT_LT(Render("{{ raise_exception('long' * 1000) }}").size(), 1100u);
}

TEST(Template, KnowsTheNamesItReads) {
  const auto parsed = Template::Parse("{% if tools %}{{ messages }}{% endif %}{{ x.thinking }}");
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->Reads("tools"));
  EXPECT_FALSE(parsed->Reads("thinking"));
}

TEST(Template, TakesBytesThatAreNoUtf8) {
  EXPECT_EQ(Render("{{ x | upper | trim }}{{ x[1] }}", {{"x", "a\xff\xc3"}}), "A\xff\xc3\xff");
  EXPECT_EQ(Render("{{ x | length }}", {{"x", "\xe4\xb8\x96\xf0\x9f"}}), "3");
}

}  // namespace
}  // namespace winnow::jinja

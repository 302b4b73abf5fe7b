#include "compare_report.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "console.h"
#include "eval/metrics/keywords.h"
#include "report/page/page.h"

namespace winnow::apps {
namespace {

using eval::Answer;

double FractionOfRange(const Answer& answer) {
  return static_cast<double>(answer.cache_bytes_with_lists) /
         static_cast<double>(answer.cache_bytes_full_f16);
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Whether an answer is as good as can be told: right, or that of the full cache.
bool IsGood(const Answer& answer, const Answer& full, const std::string& expected) {
  return expected.empty() ? Trimmed(answer.text) == Trimmed(full.text)
                          : HasAnswer(answer.text, expected);
}

// One bar for each answer.
report::Figure Bars(std::string name, std::string title, std::string label,
                    std::span<const Answer> answers, double (*value)(const Answer& answer)) {
  report::BarChart chart = {.x_label = "",
                            .categories = {},
                            .y = {.label = std::move(label), .from = {}, .to = {}},
                            .series = {{"", {}}}};
  for (const Answer& answer : answers) {
    chart.categories.push_back(ToString(answer));
    chart.series[0].values.push_back(value(answer));
  }
  return {.name = std::move(name),
          .title = std::move(title),
          .caption = "",
          .panels = {{"", std::move(chart)}}};
}

// The tokens of the prompt that `text` stands in, everywhere it does; in any case.
std::vector<bool> TokensWith(std::span<const std::string> tokens, std::string_view text) {
  std::vector<bool> found(tokens.size());
  std::string all;
  std::vector<size_t> ends;
  const auto lower = [](std::string_view from) {
    std::string to(from);
    for (char& c : to) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return to;
  };
  for (const std::string& token : tokens) {
    all += lower(token);
    ends.push_back(all.size());
  }
  const std::string wanted = lower(Trimmed(text));
  if (wanted.empty()) return found;
  for (size_t at = all.find(wanted); at != std::string::npos; at = all.find(wanted, at + 1)) {
    size_t i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), at) - ends.begin());
    for (; i < tokens.size() && (i == 0 ? 0 : ends[i - 1]) < at + wanted.size(); ++i) {
      found[i] = true;
    }
  }
  return found;
}

// The share of the marked tokens' entries that a cache kept, over all layers and heads, and of
// those that it merged into others: "3.6 %", "3.6 %, 96.4 % merged". Empty: no token is marked.
std::string KeptOfMarked(const Answer& answer, const std::vector<bool>& marked) {
  const report::TokenMap::View view = {.name = "", .states = answer.states};
  double kept = 0, merged = 0, n = 0;
  const std::vector<report::TokenShares> shares = report::CountTokenShares(view, marked.size());
  for (size_t i = 0; i < marked.size(); ++i) {
    if (!marked[i]) continue;
    ++n;
    kept += shares[i].kept;
    merged += shares[i].merged;
  }
  if (n == 0) return "";
  const std::string text = Fixed(100 * kept / n, 1) + " %";
  return merged == 0 ? text : text + ", " + Fixed(100 * merged / n, 1) + " % merged";
}

report::Table AnswerTable(const ComparePage& page, const std::vector<bool>& marked) {
  const std::span<const Answer> answers = page.answers;
  report::Table table = {
      .name = "answers",
      .title = "",
      .caption = std::string(page.expected.empty()
                                 ? "Same: whether the answer is the full cache's."
                                 : "Right: whether the answer has " + page.expected + " in it.") +
                 " KLD: divergence of the next-token distributions from the full cache's, along "
                 "its answer; same top: how often the most likely token is the same. Kept: entries "
                 "per KV head, the mean over layers and heads, after the prompt; answer kept: the "
                 "share of the entries of those tokens in which the answer stands. Times are of "
                 "one run and no measurement.",
      .rows = {}};
  const bool is_marked = std::find(marked.begin(), marked.end(), true) != marked.end();
  for (const Answer& answer : answers) {
    const bool is_base = table.rows.empty();
    const eval::KlDivergence& against = answer.against_full;
    const bool good = IsGood(answer, answers.front(), page.expected);
    report::Record row = {{"method", ToString(answer)},
                          {"answer", answer.text},
                          {page.expected.empty() ? "same" : "right", good ? "yes" : "✗ no"},
                          {"kept", Fixed(answer.kept, 1)}};
    if (is_marked) row.Add("answer kept", is_base ? "100.0 %" : KeptOfMarked(answer, marked));
    row.Add("cache", HumanBytes(answer.cache_bytes));
    row.Add("with lists", HumanBytes(answer.cache_bytes_with_lists));
    row.Add("of full f16", ShareText(answer));
    row.Add("KLD", is_base ? "" : Fixed(against.kld().mean(), 5));
    row.Add("same top", is_base ? "" : Fixed(100 * against.same_top().mean(), 1) + " %");
    row.Add("first token ms", Fixed(answer.first_token_ms, 1));
    row.Add("tokens/s", Fixed(answer.tokens_per_second, 1));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// The best first: good answers, then the nearest to the full cache.
std::vector<const Answer*> BestFirst(const ComparePage& page) {
  std::vector<const Answer*> best;
  for (const Answer& answer : page.answers.subspan(1)) best.push_back(&answer);
  std::stable_sort(best.begin(), best.end(), [&](const Answer* a, const Answer* b) {
    const bool a_good = IsGood(*a, page.answers.front(), page.expected);
    const bool b_good = IsGood(*b, page.answers.front(), page.expected);
    if (a_good != b_good) return a_good;
    return a->against_full.kld().mean() < b->against_full.kld().mean();
  });
  return best;
}

}  // namespace

std::string ToString(const Answer& answer) {
  return answer.method + (answer.budget.empty() ? "" : " " + answer.budget);
}

bool HasBudgets(std::span<const Answer> answers) {
  return std::any_of(answers.begin(), answers.end(),
                     [](const Answer& answer) { return !answer.budget.empty(); });
}

std::string ShareText(const Answer& answer) {
  const double share = FractionOfRange(answer);
  return Fixed(100 * share, 1) + " %" + (eval::Exceeds(share, answer.equal_bytes) ? " (over)" : "");
}

bool HasAnswer(const std::string& text, const std::string& expected) {
  return eval::HasWhole(text, expected);
}

std::string AnswerMark(const Answer& answer, const Answer& full, const std::string& expected) {
  if (IsGood(answer, full, expected)) return "";
  return expected.empty() ? "  [not the full cache's]" : "  [not " + expected + "]";
}

Result<void> WriteComparePage(const ComparePage& content, const tokenizer::Tokenizer& tokenizer,
                              const std::string& path) {
  report::Page page(content.question.empty() ? "Comparison" : content.question,
                    "One prompt under the full cache and under each method; answers are greedy.",
                    content.facts);
  report::TokenMap map = {.name = "kept-text",
                          .title = "What each cache kept of the prompt",
                          .caption = "",
                          .tokens = {},
                          .views = {}};
  for (const runtime::TokenId token : content.prompt) {
    map.tokens.push_back(tokenizer.Decode(std::span(&token, 1)));
  }
  const std::string& answer =
      content.expected.empty() ? content.answers.front().text : content.expected;
  map.marked = TokensWith(map.tokens, answer);
  const bool is_marked = std::find(map.marked.begin(), map.marked.end(), true) != map.marked.end();
  map.caption = std::string(
                    "Before the first token of the answer. Choose a cache, a layer and a "
                    "KV head; the first cache is the one whose answer is best. ") +
                (is_marked ? "Underlined: where the answer stands."
                           : "The answer does not stand in the prompt in so many words.");
  page.AddTable(AnswerTable(content, map.marked));
  for (const Answer* each : BestFirst(content)) {
    map.views.push_back({.name = ToString(*each), .states = each->states});
  }
  if (!map.views.empty()) page.AddTokenMap(std::move(map));
  page.AddFigure(Bars(
      "memory", "Cache with lists after the prompt", "KiB", content.answers,
      [](const Answer& each) { return static_cast<double>(each.cache_bytes_with_lists) / 1024; }));
  if (content.answers.size() > 1) {
    page.AddFigure(Bars("kld", "Distance from the full cache", "mean KLD, nats",
                        content.answers.subspan(1),
                        [](const Answer& each) { return each.against_full.kld().mean(); }));
  }
  return page.Write(path);
}

}  // namespace winnow::apps

#include "compare_report.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "base/fixed.h"
#include "console.h"
#include "eval/metrics/keywords.h"
#include "report/page/page.h"

namespace winnow::apps {
namespace {

using eval::Answer;
using eval::ComparedCache;

double ShareOfFull(const ComparedCache& cache) {
  return static_cast<double>(cache.cache_bytes_with_lists) /
         static_cast<double>(cache.cache_bytes_full_f16);
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Whether an answer is right, or equals the full cache's if the right answer is unknown.
bool IsGood(const Answer& answer, const Answer& full, const std::string& expected) {
  return expected.empty() ? Trimmed(answer.text) == Trimmed(full.text)
                          : HasAnswer(answer.text, expected);
}

size_t CountGood(const ComparedCache& cache, const ComparedCache& full,
                 const AskedQuestions& asked) {
  size_t n = 0;
  for (size_t i = 0; i < cache.answers.size(); ++i) {
    n += IsGood(cache.answers[i], full.answers[i], asked.right_answer(i)) ? 1 : 0;
  }
  return n;
}

// A chart with one bar per cache.
report::Figure Bars(std::string name, std::string title, std::string label,
                    std::span<const ComparedCache> caches,
                    double (*value)(const ComparedCache& cache)) {
  report::BarChart chart = {.x_label = "",
                            .categories = {},
                            .y = {.label = std::move(label), .from = {}, .to = {}},
                            .series = {{"", {}}}};
  for (const ComparedCache& cache : caches) {
    chart.categories.push_back(ToString(cache));
    chart.series[0].values.push_back(value(cache));
  }
  return {.name = std::move(name),
          .title = std::move(title),
          .caption = "",
          .panels = {{"", std::move(chart)}}};
}

// The tokens that contain an occurrence of `text`, ignoring case.
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

// The share of the marked tokens' entries that a cache kept, over all layers and heads, and the
// share that it merged: "3.6 %", "3.6 %, 96.4 % merged". Empty: no token is marked.
std::string KeptOfMarked(const ComparedCache& cache, const std::vector<bool>& marked) {
  const report::TokenMap::View view = {.name = "", .states = cache.states};
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

std::string TableCaption(const AskedQuestions& asked) {
  std::string text;
  if (asked.right.empty()) {
    text = "Same: whether the answer equals the full cache's.";
  } else if (asked.right.size() == 1) {
    text = "Right: whether the answer has " + asked.right[0] + " in it.";
  } else {
    text = "Right: how many answers have the right one in them.";
  }
  text +=
      " KLD: divergence of the next-token distributions from the full cache's, along its answer; "
      "same top: how often the most likely token is the same. Kept: entries per KV head, the mean "
      "over layers and heads, after the ";
  text += asked.hidden ? "document" : "prompt";
  text +=
      "; answer kept: the share of the entries of the tokens that contain the answer. Times are of "
      "one run, not a measurement.";
  return text;
}

report::Table CacheTable(const ComparePage& page, const std::vector<bool>& marked) {
  const AskedQuestions& asked = page.asked;
  report::Table table = {
      .name = "answers", .title = "", .caption = TableCaption(asked), .rows = {}};
  const bool is_marked = std::find(marked.begin(), marked.end(), true) != marked.end();
  for (const ComparedCache& cache : page.caches) {
    const bool is_base = table.rows.empty();
    const eval::KlDivergence& against = cache.against_full;
    const Answer& first = cache.answers.front();
    const bool one = cache.answers.size() == 1;
    const std::string good = GoodText(cache, page.caches.front(), asked);
    report::Record row = {{"method", ToString(cache)}};
    if (one) row.Add("answer", first.text);
    row.Add(asked.right.empty() ? "same" : "right", good == "no" ? "✗ no" : good);
    row.Add("kept", Fixed(cache.kept, 1));
    if (is_marked) row.Add("answer kept", is_base ? "100.0 %" : KeptOfMarked(cache, marked));
    row.Add("cache", HumanBytes(cache.cache_bytes));
    row.Add("with lists", HumanBytes(cache.cache_bytes_with_lists));
    row.Add("of full f16", ShareText(cache));
    row.Add("KLD", is_base ? "" : Fixed(against.kld().mean(), 5));
    row.Add("same top", is_base ? "" : Fixed(100 * against.same_top().mean(), 1) + " %");
    if (asked.hidden) row.Add("read ms", Fixed(cache.read_ms, 1));
    if (one) {
      row.Add("first token ms", Fixed(first.first_token_ms, 1));
      row.Add("tokens/s", Fixed(first.tokens_per_second, 1));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// For one of several questions: the answer of each cache.
report::Table QuestionTable(const ComparePage& page, size_t question) {
  report::Table table = {.name = "question-" + std::to_string(question + 1),
                         .title = page.asked.texts[question],
                         .caption = "",
                         .rows = {}};
  const std::string right = page.asked.right_answer(question);
  const Answer& full = page.caches.front().answers[question];
  for (const ComparedCache& cache : page.caches) {
    const Answer& answer = cache.answers[question];
    const bool is_base = table.rows.empty();
    table.rows.push_back(
        {{"method", ToString(cache)},
         {"answer", answer.text},
         {right.empty() ? "same" : "right", IsGood(answer, full, right) ? "yes" : "✗ no"},
         {"KLD", is_base ? "" : Fixed(answer.against_full.kld().mean(), 5)},
         {"first token ms", Fixed(answer.first_token_ms, 1)},
         {"tokens/s", Fixed(answer.tokens_per_second, 1)}});
  }
  return table;
}

// Sorted by the number of good answers, then by divergence from the full cache.
std::vector<const ComparedCache*> BestFirst(const ComparePage& page) {
  std::vector<const ComparedCache*> best;
  for (const ComparedCache& cache : page.caches.subspan(1)) best.push_back(&cache);
  std::stable_sort(best.begin(), best.end(), [&](const ComparedCache* a, const ComparedCache* b) {
    const size_t a_good = CountGood(*a, page.caches.front(), page.asked);
    const size_t b_good = CountGood(*b, page.caches.front(), page.asked);
    if (a_good != b_good) return a_good > b_good;
    return a->against_full.kld().mean() < b->against_full.kld().mean();
  });
  return best;
}

}  // namespace

std::string ToString(const ComparedCache& cache) {
  return cache.method + (cache.budget.empty() ? "" : " " + cache.budget);
}

bool HasBudgets(std::span<const ComparedCache> caches) {
  return std::any_of(caches.begin(), caches.end(),
                     [](const ComparedCache& cache) { return !cache.budget.empty(); });
}

std::string ShareText(const ComparedCache& cache) {
  const double share = ShareOfFull(cache);
  return Fixed(100 * share, 1) + " %" + (eval::Exceeds(share, cache.equal_bytes) ? " (over)" : "");
}

std::string GoodText(const ComparedCache& cache, const ComparedCache& full,
                     const AskedQuestions& asked) {
  const size_t n = CountGood(cache, full, asked);
  if (cache.answers.size() == 1) return n == 1 ? "yes" : "no";
  return std::to_string(n) + " of " + std::to_string(cache.answers.size());
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
  const AskedQuestions& asked = content.asked;
  std::string title = asked.texts.front().empty() ? "Comparison" : asked.texts.front();
  if (asked.texts.size() > 1) {
    title = std::to_string(asked.texts.size()) + " questions about one document";
  }
  report::Page page(std::move(title),
                    asked.hidden
                        ? "One document, read under the full cache and compressed under each "
                          "method before anything was asked; answers are greedy."
                        : "One prompt under the full cache and under each method; answers are "
                          "greedy.",
                    content.facts);
  report::TokenMap map = {.name = "kept-text",
                          .title = "What each cache kept of the prompt",
                          .caption = "",
                          .tokens = {},
                          .views = {}};
  for (const runtime::TokenId token : content.prompt) {
    map.tokens.push_back(tokenizer.Decode(std::span(&token, 1)));
  }
  map.marked.resize(map.tokens.size());
  for (size_t i = 0; i < asked.texts.size(); ++i) {
    const std::string& full = content.caches.front().answers[i].text;
    const std::vector<bool> marked =
        TokensWith(map.tokens, asked.right.empty() ? full : asked.right[i]);
    for (size_t at = 0; at < marked.size(); ++at) {
      if (marked[at]) map.marked[at] = true;
    }
  }
  const bool is_marked = std::find(map.marked.begin(), map.marked.end(), true) != map.marked.end();
  map.caption =
      std::string(asked.hidden ? "Before the questions."
                               : "Before the first token of the answer.") +
      " Choose a cache, a layer and a KV head; the first cache is the one with the best answer. " +
      (is_marked ? "Underlined: the answer." : "The prompt does not contain the answer verbatim.");
  page.AddTable(CacheTable(content, map.marked));
  for (size_t i = 0; i < asked.texts.size() && asked.texts.size() > 1; ++i) {
    page.AddTable(QuestionTable(content, i));
  }
  for (const ComparedCache* each : BestFirst(content)) {
    map.views.push_back({.name = ToString(*each), .states = each->states});
  }
  if (!map.views.empty()) page.AddTokenMap(std::move(map));
  page.AddFigure(Bars("memory", "Cache with lists after the prompt", "KiB", content.caches,
                      [](const ComparedCache& each) {
                        return static_cast<double>(each.cache_bytes_with_lists) / 1024;
                      }));
  if (content.caches.size() > 1) {
    page.AddFigure(Bars("kld", "Distance from the full cache", "mean KLD, nats",
                        content.caches.subspan(1),
                        [](const ComparedCache& each) { return each.against_full.kld().mean(); }));
  }
  return page.Write(path);
}

}  // namespace winnow::apps

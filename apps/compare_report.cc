#include "compare_report.h"

#include <cmath>
#include <utility>
#include <vector>

#include "report/page/page.h"

namespace winnow::apps {
namespace {

// One bar for each answer.
report::Figure Bars(std::string name, std::string title, std::string label,
                    std::span<const eval::Answer> answers,
                    double (*value)(const eval::Answer& answer)) {
  report::BarChart chart = {.x_label = "",
                            .categories = {},
                            .y = {.label = std::move(label), .from = {}, .to = {}},
                            .series = {{"", {}}}};
  for (const eval::Answer& answer : answers) {
    chart.categories.push_back(answer.method);
    chart.series[0].values.push_back(value(answer));
  }
  return {.name = std::move(name),
          .title = std::move(title),
          .caption = "",
          .panels = {{"", std::move(chart)}}};
}

report::Table AnswerTable(std::span<const eval::Answer> answers) {
  report::Table table = {.name = "answers",
                         .title = "",
                         .caption =
                             "KLD: divergence of the next-token distributions from the full "
                             "cache's, along its answer; same top: how often the most "
                             "likely token is the same. Kept: entries per KV head, the mean "
                             "over layers and heads, after the prompt.",
                         .rows = {}};
  for (const eval::Answer& answer : answers) {
    const bool is_base = table.rows.empty();
    const eval::KlDivergence& against = answer.against_full;
    table.rows.push_back(
        {{"method", answer.method},
         {"answer", answer.text},
         {"kept", answer.kept},
         {"cache, KiB", static_cast<double>(answer.cache_bytes) / 1024},
         {"with lists, KiB", static_cast<double>(answer.cache_bytes_with_lists) / 1024},
         {"first token, ms", answer.first_token_ms},
         {"tokens/s", answer.tokens_per_second},
         {"KLD, nats", is_base ? report::Value() : against.kld().mean()},
         {"same top", is_base ? report::Value() : against.same_top().mean()}});
  }
  return table;
}

}  // namespace

Result<void> WriteComparePage(const ComparePage& content, const tokenizer::Tokenizer& tokenizer,
                              const std::string& path) {
  report::Page page(content.question.empty() ? "Comparison" : content.question,
                    "One prompt under the full cache and under each method; answers are greedy.",
                    content.facts);
  page.AddTable(AnswerTable(content.answers));
  report::TokenMap map = {.name = "kept-text",
                          .title = "What each cache kept of the prompt",
                          .caption =
                              "Before the first token of the answer. Choose a cache, a layer "
                              "and a KV head.",
                          .tokens = {},
                          .views = {}};
  for (const runtime::TokenId token : content.prompt) {
    map.tokens.push_back(tokenizer.Decode(std::span(&token, 1)));
  }
  for (const eval::Answer& answer : content.answers.subspan(1)) {
    map.views.push_back({.name = answer.method, .states = answer.states});
  }
  if (!map.views.empty()) page.AddTokenMap(std::move(map));
  page.AddFigure(Bars("memory", "Cache with lists after the prompt", "KiB", content.answers,
                      [](const eval::Answer& answer) {
                        return static_cast<double>(answer.cache_bytes_with_lists) / 1024;
                      }));
  page.AddFigure(Bars("speed", "Decoding", "tokens per second", content.answers,
                      [](const eval::Answer& answer) { return answer.tokens_per_second; }));
  page.AddFigure(Bars("first-token", "Prompt and first token", "ms", content.answers,
                      [](const eval::Answer& answer) { return answer.first_token_ms; }));
  if (content.answers.size() > 1) {
    page.AddFigure(
        Bars("kld", "Distance from the full cache", "mean KLD, nats", content.answers.subspan(1),
             [](const eval::Answer& answer) { return answer.against_full.kld().mean(); }));
  }
  return page.Write(path);
}

}  // namespace winnow::apps

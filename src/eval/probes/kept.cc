// TreeKV, Figure 1 and EMS, Figures 2 and 8: which tokens methods keep. Shown over time (a row for
// each step, mean over layers and heads), at the end (a row for each head), and in the text itself.
#include <algorithm>
#include <cmath>
#include <string>

#include "eval/probes/follow.h"
#include "eval/probes/probe.h"
#include "report/page/token_map_html.h"

namespace winnow::eval {
namespace {

// Maximum rows of a map over time; longer runs skip steps evenly.
constexpr int64_t kMaxSteps = 160;

// The share of all heads that hold token `position` after `step` tokens.
double ShareAt(const KeptTracker& tracker, int64_t position, int64_t step) {
  const cache::CacheShape& shape = tracker.shape();
  int64_t n_kept = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      const int32_t evicted_at = tracker.evicted_at(layer, head, position);
      if (evicted_at == KeptTracker::kStays || evicted_at > step) ++n_kept;
    }
  }
  const double share = static_cast<double>(n_kept) / (shape.n_layers * shape.n_kv_heads);
  return std::round(1000 * share) /
         1000;  // keeps the files small: they have a number for each step and token
}

// Rows from the end of the prompt to the last token. Tokens not seen yet are NaN.
report::HeatMap OverTime(const KeptTracker& tracker, int64_t n_prompt, int64_t n_tokens) {
  const int64_t n_steps = n_tokens - n_prompt + 1;
  const int64_t n_rows = std::min(n_steps, kMaxSteps);  // two or more
  report::HeatMap map = {.x = {.label = "token", .from = 0, .to = static_cast<double>(n_tokens)},
                         .y = {.label = "tokens seen",
                               .from = static_cast<double>(n_prompt),
                               .to = static_cast<double>(n_tokens)},
                         .n_rows = n_rows,
                         .n_columns = n_tokens,
                         .values = {},
                         .value_label = "share of all heads that keep the token",
                         .from = 0,
                         .to = 1};
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t step = n_prompt + row * (n_steps - 1) / (n_rows - 1);
    for (int64_t token = 0; token < n_tokens; ++token) {
      map.values.push_back(token >= step ? NAN : ShareAt(tracker, token, step));
    }
  }
  return map;
}

report::HeatMap AtTheEnd(const std::vector<std::vector<std::string>>& states) {
  const auto n_heads = static_cast<int64_t>(states[0].size());
  report::HeatMap map = {.x = {.label = "token", .from = {}, .to = {}},
                         .y = {.label = "layer.head", .from = {}, .to = {}},
                         .n_rows = static_cast<int64_t>(states.size()) * n_heads,
                         .n_columns = static_cast<int64_t>(states[0][0].size()),
                         .values = {},
                         .value_label = "0 evicted, 0.5 merged into a kept entry, 1 kept",
                         .from = 0,
                         .to = 1};
  for (size_t layer = 0; layer < states.size(); ++layer) {
    for (size_t head = 0; head < states[layer].size(); ++head) {
      map.row_names.push_back(std::to_string(layer) + "." + std::to_string(head));
      for (const char state : states[layer][head]) {
        map.values.push_back(state == report::TokenMap::kKept     ? 1
                             : state == report::TokenMap::kMerged ? 0.5
                                                                  : 0);
      }
    }
  }
  return map;
}

}  // namespace

Result<std::optional<Findings>> ProbeKept(const ProbeTask& task) {
  const std::vector<runtime::TokenId>& sample = task.samples.front();
  const int64_t n = task.n_tokens();
  Findings findings;
  report::Figure over_time = {
      .name = "kept-over-time",
      .title = "What is kept, step by step",
      .caption = "A row for each step, from the prompt of " + std::to_string(task.n_prompt) +
                 " tokens (top) to the last of " + std::to_string(n) +
                 "; the colour says in how many of all heads the token still has an entry.",
      .panels = {}};
  report::Figure at_the_end = {
      .name = "kept-per-head",
      .title = "What is kept in every head",
      .caption = "After all " + std::to_string(n) + " tokens; a row for each layer and KV head.",
      .panels = {}};
  report::TokenMap map = {.name = "kept-text",
                          .title = "What is kept of the text",
                          .caption =
                              "Choose a cache, a layer, a KV head and how many tokens it has "
                              "seen; rest on a token to see in how many heads it is kept.",
                          .tokens = {},
                          .views = {},
                          .n_prompt = task.n_prompt};
  for (const runtime::TokenId token : sample) {
    map.tokens.push_back(task.engine.tokenizer().Decode(std::span(&token, 1)));
  }
  report::List methods;
  report::List evictions;
  const double share = 1 / static_cast<double>(task.methods.size());
  for (size_t i = 0; i < task.methods.size(); ++i) {
    const ProgressRange portion = {static_cast<double>(i) * share, share};
    WINNOW_ASSIGN(const auto followed,
                  Follow(task, task.methods[i], sample, task.n_prompt, portion));
    if (!followed) return std::optional<Findings>();
    const std::string name = task.methods[i].Name();
    auto states = followed->tracker->States(n);
    report::List kept;
    for (int layer = 0; layer < followed->tracker->shape().n_layers; ++layer) {
      kept.emplace_back(followed->session->kept(layer));
    }
    methods.emplace_back(
        report::Record{{"method", name},
                       {"kept", std::move(kept)},
                       {"cache_bytes", followed->session->cache_bytes()},
                       {"cache_bytes_with_lists", followed->session->cache_bytes_with_lists()},
                       {"cache_bytes_full_f16", followed->session->cache_bytes_full_f16()}});
    if (task.n_prompt < n) {
      over_time.panels.push_back({name, OverTime(*followed->tracker, task.n_prompt, n)});
    }
    at_the_end.panels.push_back({name, AtTheEnd(states)});
    map.views.push_back(
        {.name = name, .states = std::move(states), .evicted_at = followed->tracker->Evictions(n)});
    evictions.emplace_back(
        report::Record{{"method", name}, {"layers", report::EvictionData(map.views.back())}});
  }
  findings.summary = {{"prompt", task.n_prompt}, {"seen", n}, {"methods", std::move(methods)}};
  findings.details = {{"evicted_at", std::move(evictions)}};
  findings.text =
      "A band along the right edge is a recent window; tokens that every step found important are "
      "columns with the colour of 1 from top to bottom.";
  if (!over_time.panels.empty()) findings.figures.push_back(std::move(over_time));
  findings.figures.push_back(std::move(at_the_end));
  findings.maps.push_back(std::move(map));
  return std::optional(std::move(findings));
}

}  // namespace winnow::eval

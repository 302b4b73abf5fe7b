// ReFreeKV: how much of each layer is kept by a method that finds its own size, by default for
// several thresholds on the attention norm that may be lost.
#include <algorithm>
#include <string>

#include "eval/probes/follow.h"
#include "eval/probes/probe.h"

namespace winnow::eval {

Result<std::optional<Findings>> ProbeBudget(const ProbeTask& task) {
  const int n_layers = task.engine.model().cache_shape().n_layers;
  const auto n_samples = static_cast<double>(task.samples.size());
  report::LineChart chart = {.x = {.label = "layer", .from = {}, .to = {}, .whole = true},
                             .y = {.label = "share of the prompt kept", .from = 0, .to = 1},
                             .series = {},
                             .style = report::LineChart::Style::kMarkedLine};
  std::vector<report::Record> rows;
  report::List methods;
  const double share = 1 / (n_samples * static_cast<double>(task.methods.size()));
  double done = 0;
  for (const Candidate& method : task.methods) {
    report::LineChart::Series series = {.name = method.Name(), .x = {}, .y = {}};
    series.y.assign(static_cast<size_t>(n_layers), 0);
    double min = 1, max = 0, sum = 0;  // of the samples
    for (const auto& sample : task.samples) {
      WINNOW_ASSIGN(const auto followed,
                    Follow(task, method, sample, task.n_tokens(), {done, share}));
      if (!followed) return std::optional<Findings>();
      done += share;
      double mean = 0;
      for (int layer = 0; layer < n_layers; ++layer) {
        const double kept = followed->session->kept(layer) / static_cast<double>(task.n_tokens());
        series.y[static_cast<size_t>(layer)] += kept / n_samples;
        mean += kept / n_layers;
      }
      min = std::min(min, mean);
      max = std::max(max, mean);
      sum += mean;
    }
    for (int layer = 0; layer < n_layers; ++layer) series.x.push_back(layer);
    rows.push_back({{"method", series.name},
                    {"kept, mean", sum / n_samples},
                    {"minimum over samples", min},
                    {"maximum over samples", max}});
    methods.emplace_back(report::Record{{"method", series.name},
                                        {"mean", sum / n_samples},
                                        {"least", min},
                                        {"most", max},
                                        {"layers", report::MakeList(series.y)}});
    chart.series.push_back(std::move(series));
  }
  Findings findings;
  findings.summary = {{"methods", std::move(methods)}};
  findings.text =
      "The smaller the loss that is allowed, the more is kept; how much depends on the text, not "
      "on "
      "a budget given beforehand.";
  findings.figures.push_back({.name = "budget",
                              .title = "What each layer keeps",
                              .caption = "Mean over the samples, prompts of " +
                                         std::to_string(task.n_tokens()) + " tokens.",
                              .panels = {{"", std::move(chart)}}});
  findings.tables.push_back({.name = "budget-by-sample",
                             .title = "Share of the prompt kept, over all layers",
                             .caption = "",
                             .rows = std::move(rows)});
  return std::optional(std::move(findings));
}

}  // namespace winnow::eval

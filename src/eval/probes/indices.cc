// HBW-KV, Figure 3: where in the prompt the kept tokens lie, and how evenly: the entropy of their
// distribution over equal parts of the prompt.
// The paper does not say over which parts the entropy is taken; here over kBins parts, in nats.
#include <algorithm>
#include <cmath>
#include <string>

#include "compression/registry.h"
#include "eval/probes/follow.h"
#include "eval/probes/measures.h"
#include "eval/probes/probe.h"

namespace winnow::eval {
namespace {

constexpr int kBins = 32;
constexpr int kGroups[] = {1, 2, 4, 8, 16};  // M of HBW-KV

// Entries kept in each part of the prompt, over all layers, heads and samples. nullopt: stopped.
Result<std::optional<std::vector<double>>> CountKept(const ProbeTask& task, const Candidate& method,
                                                     ProgressRange portion) {
  std::vector<double> counts(kBins, 0);
  const double share = portion.share / static_cast<double>(task.samples.size());
  for (size_t i = 0; i < task.samples.size(); ++i) {
    const ProgressRange own = {portion.done_before + static_cast<double>(i) * share, share};
    WINNOW_ASSIGN(const auto followed, Follow(task, method, task.samples[i], task.n_tokens(), own));
    if (!followed) return std::optional<std::vector<double>>();
    const cache::Cache& cache = followed->session->cache();
    const cache::CacheShape& shape = cache.config().shape;
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      for (int head = 0; head < shape.n_kv_heads; ++head) {
        const auto positions = cache.positions(layer, head);
        const std::vector<double> places(positions.begin(), positions.end());
        const auto more = Counts(places, 0, static_cast<double>(task.n_tokens()), kBins);
        for (size_t bin = 0; bin < counts.size(); ++bin) counts[bin] += more[bin];
      }
    }
  }
  return std::optional(std::move(counts));
}

report::Histogram MakeHistogram(const std::vector<double>& counts, int64_t n_tokens) {
  report::Histogram chart = {.x = {.label = "token", .from = {}, .to = {}},
                             .y = {.label = "share of kept entries", .from = {}, .to = {}},
                             .edges = {},
                             .counts = counts};
  double total = 0;
  for (const double count : counts) total += count;
  for (double& count : chart.counts) count /= total;
  for (int i = 0; i <= kBins; ++i) {
    chart.edges.push_back(static_cast<double>(n_tokens) * i / kBins);
  }
  return chart;
}

}  // namespace

Result<std::optional<Findings>> ProbeIndices(const ProbeTask& task) {
  Findings findings;
  report::Figure histograms = {
      .name = "indices",
      .title = "Where the kept tokens lie",
      .caption = "Prompts of " + std::to_string(task.n_tokens()) + " tokens in " +
                 std::to_string(kBins) +
                 " parts, all layers, heads and samples; an even choice would fill all "
                 "of them alike.",
      .panels = {}};
  report::BarChart entropies = {.x_label = "method",
                                .categories = {},
                                .y = {.label = "entropy, nats", .from = {}, .to = {}},
                                .series = {{"", {}}}};
  // Also sweep the groups of HBW-KV at the first method's budget, if it has one.
  const Candidate& first = task.methods.front();
  const bool sweeps = first.compression.size > 0 || first.compression.ratio > 0;
  const size_t n_sweep = sweeps ? std::size(kGroups) : 0;
  const double share = 1 / static_cast<double>(task.methods.size() + n_sweep);
  report::List methods;
  for (size_t i = 0; i < task.methods.size(); ++i) {
    const ProgressRange portion = {static_cast<double>(i) * share, share};
    WINNOW_ASSIGN(const auto counts, CountKept(task, task.methods[i], portion));
    if (!counts) return std::optional<Findings>();
    const std::string name = task.methods[i].Name();
    entropies.categories.push_back(name);
    entropies.series[0].values.push_back(Entropy(*counts));
    histograms.panels.push_back({name, MakeHistogram(*counts, task.n_tokens())});
    methods.emplace_back(report::Record{{"method", name}, {"entropy", Entropy(*counts)}});
  }
  report::LineChart sweep = {
      .x = {.label = "groups M", .scale = report::Scale::kLog2, .from = {}, .to = {}},
      .y = {.label = "entropy, nats", .from = {}, .to = {}},
      .series = {{.name = "", .x = {}, .y = {}}},
      .style = report::LineChart::Style::kMarkedLine};
  for (size_t i = 0; i < n_sweep; ++i) {
    Candidate candidate = first;
    WINNOW_ASSIGN(candidate.compression.method,
                  compression::MakeMethod("hbw:rounds=" + std::to_string(kGroups[i])));
    const double before = static_cast<double>(task.methods.size() + i) * share;
    WINNOW_ASSIGN(const auto counts, CountKept(task, candidate, {before, share}));
    if (!counts) return std::optional<Findings>();
    sweep.series[0].x.push_back(kGroups[i]);
    sweep.series[0].y.push_back(Entropy(*counts));
  }
  findings.summary = {
      {"parts", kBins}, {"most_entropy", std::log(kBins)}, {"methods", std::move(methods)}};
  if (sweeps) findings.summary.Add("hbw_entropy_by_groups", report::MakeList(sweep.series[0].y));
  findings.text = "An even choice would have an entropy of " +
                  report::ToJson(std::round(1000 * std::log(kBins)) / 1000) +
                  " nats; methods that look only at scores crowd around the ends of the prompt.";
  findings.figures.push_back(std::move(histograms));
  findings.figures.push_back({.name = "entropy",
                              .title = "How evenly methods choose",
                              .caption = "Entropy of the distributions above.",
                              .panels = {{"", std::move(entropies)}}});
  if (sweeps) {
    findings.figures.push_back(
        {.name = "entropy-by-groups",
         .title = "HBW-KV: more groups, a more even choice",
         .caption = "hbw:rounds=M: every one of M equal parts of the prompt keeps its best blocks.",
         .panels = {{"", std::move(sweep)}}});
  }
  return std::optional(std::move(findings));
}

}  // namespace winnow::eval

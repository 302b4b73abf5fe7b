// EMS, Figure 7: of the prompt entries that the global-local score keeps, the shares that the
// global score chose, that the local score chose, and that are local tokens themselves.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/pool.h"
#include "eval/probes/probe.h"
#include "eval/probes/watch.h"

namespace winnow::eval {
namespace {

constexpr int kWindow = 32;  // local tokens, and the queries of the local score  [paper]
constexpr int kKernel = 7;   // smoothing of the scores  [paper]
// Shares of the prompt to keep  [paper: 256 and 1024 of 4096].
constexpr double kShares[] = {1.0 / 16, 1.0 / 4};

// Shares of the kept entries; they add up to 1.
struct Origins {
  double global = 0;
  double local = 0;
  double window = 0;
};

// The origins of one KV head's `n_keep` best entries, which include the window.
Origins FindOrigins(const compression::LayerCall& call, int head, int64_t n_keep, int64_t window) {
  const std::vector<double>& global = call.taps->column_sums[static_cast<size_t>(head)];
  const std::vector<double>& local = call.taps->last_sums[static_cast<size_t>(head)];
  const double factor =
      compression::Fraction(std::accumulate(local.begin(), local.end(), 0.0),
                            std::accumulate(global.begin(), global.end(), 0.0), 0);
  // The slots of a prompt are in text order.
  const size_t n_before = global.size() - static_cast<size_t>(window);
  std::vector<double> scores(n_before);
  for (size_t i = 0; i < n_before; ++i) scores[i] = std::max(factor * global[i], local[i]);
  std::vector<double> copy;
  compression::score::Smooth(compression::score::Pool::kAverage, kKernel, copy, scores);
  std::vector<int32_t> ranking(n_before);
  std::iota(ranking.begin(), ranking.end(), 0);
  const auto n_best = static_cast<size_t>(n_keep - window);
  std::partial_sort(ranking.begin(), ranking.begin() + static_cast<ptrdiff_t>(n_best),
                    ranking.end(), compression::BestFirst{scores});
  Origins found;
  const double share = 1 / static_cast<double>(n_keep);
  for (size_t i = 0; i < n_best; ++i) {
    const auto token = static_cast<size_t>(ranking[i]);
    (factor * global[token] > local[token] ? found.global : found.local) += share;
  }
  found.window = static_cast<double>(window) * share;
  return found;
}

}  // namespace

Result<std::optional<Findings>> ProbeOrigin(const ProbeTask& task) {
  const cache::CacheShape shape = task.engine.model().cache_shape();
  const int64_t n = task.n_tokens();
  std::vector<int64_t> sizes;
  for (const double share : kShares) {
    sizes.push_back(compression::CountFrom(share * static_cast<double>(n)));
  }
  if (sizes[0] < 2) {
    return Error{"origin: found samples of " + std::to_string(n) +
                 " tokens, expected 32 or more, so that a sixteenth of them are several"};
  }
  // As in all window methods, a window not smaller than the budget shrinks to half the budget.
  const int64_t window = compression::WindowUnder(sizes[0], kWindow);
  std::vector<std::vector<Origins>> means(
      sizes.size(), std::vector<Origins>(static_cast<size_t>(shape.n_layers)));
  const double weight =
      1 / static_cast<double>(task.samples.size() * static_cast<size_t>(shape.n_kv_heads));
  const auto look = [&](const compression::LayerCall& call) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        const Origins found = FindOrigins(call, head, sizes[i], window);
        Origins& mean = means[i][static_cast<size_t>(call.layer)];
        mean.global += weight * found.global;
        mean.local += weight * found.local;
        mean.window += weight * found.window;
      }
    }
  };
  WINNOW_ASSIGN(
      const bool finished,
      WatchSamples(task, {.last_sums = static_cast<int>(window), .column_sums = true}, look));
  if (!finished) return std::optional<Findings>();

  report::Figure figure = {
      .name = "origin",
      .title = "Where kept tokens come from",
      .caption =
          "Of the entries kept by the global-local score: those that the attention of all "
          "queries chose, those that the last " +
          std::to_string(window) +
          " queries chose, and these last tokens themselves. Mean over KV heads and samples.",
      .panels = {}};
  report::List budgets;
  for (size_t i = 0; i < sizes.size(); ++i) {
    report::BarChart chart = {.x_label = "layer",
                              .categories = {},
                              .y = {.label = "share of kept entries", .from = 0, .to = 1},
                              .series = {{"global", {}}, {"local", {}}, {"local tokens", {}}}};
    report::List layers;
    Origins all;
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      const Origins& found = means[i][static_cast<size_t>(layer)];
      chart.categories.push_back(std::to_string(layer));
      chart.series[0].values.push_back(found.global);
      chart.series[1].values.push_back(found.local);
      chart.series[2].values.push_back(found.window);
      layers.emplace_back(report::Record{{"layer", layer},
                                         {"global", found.global},
                                         {"local", found.local},
                                         {"local_tokens", found.window}});
      all.global += found.global / shape.n_layers;
      all.local += found.local / shape.n_layers;
    }
    budgets.emplace_back(report::Record{{"kept", sizes[i]},
                                        {"of", n},
                                        {"global", all.global},
                                        {"local", all.local},
                                        {"layers", std::move(layers)}});
    figure.panels.push_back(
        {std::to_string(sizes[i]) + " of " + std::to_string(n), std::move(chart)});
  }
  Findings findings;
  findings.summary = {{"window", window}, {"budgets", std::move(budgets)}};
  findings.text =
      "The paper finds as many entries from either score when a sixteenth of the prompt is kept, "
      "and more from the global one when a quarter is.";
  findings.figures.push_back(std::move(figure));
  return std::optional(std::move(findings));
}

}  // namespace winnow::eval

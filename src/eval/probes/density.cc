// D2O, Figures 1 and 4: attention maps of the layers, and the variance of their column sums, by
// which D2O separates dense layers (small variance) from sparse ones (large).
#include <algorithm>
#include <cmath>
#include <string>

#include "eval/probes/measures.h"
#include "eval/probes/probe.h"
#include "eval/probes/watch.h"

namespace winnow::eval {
namespace {

// Cells per side of a map; neighbouring queries and tokens share one.
constexpr int64_t kMapSide = 128;
constexpr size_t kMaxMaps = 6;  // first and last layer, and evenly spaced ones between
constexpr double kMinLog = -5;  // weights below 10^-5 are shown as 10^-5

// Mean weights [query][token] of a layer, averaged within cells.
class Map {
 public:
  explicit Map(int64_t n) : side_(std::min(n, kMapSide)), n_(n) {
    sums_.resize(static_cast<size_t>(side_ * side_));
    counts_.resize(sums_.size());
  }
  void Add(int64_t query, int64_t token, double weight) {
    const auto cell = static_cast<size_t>(query * side_ / n_ * side_ + token * side_ / n_);
    sums_[cell] += weight;
    ++counts_[cell];
  }
  report::HeatMap Chart() const {
    report::HeatMap map = {.x = {.label = "token", .from = 0, .to = static_cast<double>(n_)},
                           .y = {.label = "query", .from = 0, .to = static_cast<double>(n_)},
                           .n_rows = side_,
                           .n_columns = side_,
                           .values = {},
                           .value_label = "log10 of the mean attention weight",
                           .from = kMinLog,
                           .to = 0};
    for (size_t i = 0; i < sums_.size(); ++i) {
      const double mean = sums_[i] / static_cast<double>(counts_[i]);
      // Three digits are more than a colour can show.
      const double log = std::round(1000 * std::max(std::log10(mean), kMinLog)) / 1000;
      map.values.push_back(counts_[i] == 0 ? NAN : log);
    }
    return map;
  }

 private:
  int64_t side_, n_;
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

std::vector<int> ShownLayers(int n_layers) {
  std::vector<int> layers;
  const auto n = std::min(static_cast<int>(kMaxMaps), n_layers);
  layers.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) layers.push_back(n == 1 ? 0 : i * (n_layers - 1) / (n - 1));
  return layers;
}

}  // namespace

Result<std::optional<Findings>> ProbeDensity(const ProbeTask& task) {
  const int64_t n = task.n_tokens();
  const int n_layers = task.engine.model().hyperparameters().n_layers;
  const int n_heads = task.engine.model().hyperparameters().layer(0).n_heads;
  std::vector<Map> maps(static_cast<size_t>(n_layers), Map(n));
  std::vector<double> variances(static_cast<size_t>(n_layers), 0);
  const auto look = [&](const compression::LayerCall& call) {
    double sum = 0;
    for (const std::vector<double>& of_head : call.taps->column_sums) sum += Variance(of_head);
    variances[static_cast<size_t>(call.layer)] +=
        sum / n_heads / static_cast<double>(task.samples.size());
    Map& map = maps[static_cast<size_t>(call.layer)];
    for (int head = 0; head < n_heads; ++head) {
      for (int query = 0; query < call.taps->n_last_rows; ++query) {
        const std::span<const float> row = call.last_row(head, query);
        for (int64_t token = 0; token <= query; ++token) {
          map.Add(query, token, row[static_cast<size_t>(token)]);
        }
      }
    }
  };
  WINNOW_ASSIGN(const bool finished, WatchSamples(task,
                                                  {.last_rows = static_cast<int>(n),
                                                   .column_sums = true,
                                                   .reduce = kernels::TapSpec::Reduce::kNone},
                                                  look));
  if (!finished) return std::optional<Findings>();

  report::LineChart chart = {.x = {.label = "layer", .from = {}, .to = {}, .whole = true},
                             .y = {.label = "variance of column sums",
                                   .scale = report::Scale::kLog10,
                                   .from = {},
                                   .to = {}},
                             .series = {{.name = "", .x = {}, .y = variances}},
                             .style = report::LineChart::Style::kMarkedLine};
  for (int layer = 0; layer < n_layers; ++layer) chart.series[0].x.push_back(layer);
  report::Figure pictures = {
      .name = "attention-maps",
      .title = "Attention of selected layers",
      .caption = "Mean over the heads of the layer and the samples; cells of " +
                 std::to_string((n + kMapSide - 1) / kMapSide) + " queries and tokens.",
      .panels = {}};
  for (const int layer : ShownLayers(n_layers)) {
    pictures.panels.push_back(
        {"layer " + std::to_string(layer), maps[static_cast<size_t>(layer)].Chart()});
  }
  Findings findings;
  findings.summary = {{"column_sum_variance", report::MakeList(variances)}};
  findings.text =
      "A layer that spreads its attention evenly has a small variance: it is hard to say which "
      "tokens it could do without. The variance grows with the length of the text; D2O's gate of "
      "100 is meant for about a thousand tokens.";
  findings.figures.push_back(
      {.name = "density",
       .title = "Variance of the column sums of attention",
       .caption = "Unbiased variance over the tokens of what they received from all queries, mean "
                  "over query heads and samples, prompts of " +
                  std::to_string(n) + " tokens.",
       .panels = {{"", std::move(chart)}}});
  findings.figures.push_back(std::move(pictures));
  return std::optional(std::move(findings));
}

}  // namespace winnow::eval

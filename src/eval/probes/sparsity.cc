// EMS, section 4.1 and Figure 3: the share of entries to which a head hardly attends (sparsity, by
// the global-local score), and the share that resembles an earlier entry in key and value
// (redundancy, keys before RoPE).
#include <algorithm>
#include <numeric>
#include <string>

#include "eval/probes/measures.h"
#include "eval/probes/probe.h"
#include "eval/probes/qkv.h"
#include "eval/probes/watch.h"

namespace winnow::eval {
namespace {

constexpr double kShare = 0.95;  // zeta: of the total score [paper, caption of Figure 3]
// tau: the product of cosines from which an entry counts as redundant [same]
constexpr double kThreshold = 0.6;
constexpr int kLocal = 16;  // queries of the local score [paper, needle test]
constexpr int kBins = 40;

// max(f * global, local), with f such that both have the same sum [methods of EMS].
std::vector<double> GlobalLocal(const compression::LayerCall& call, int head) {
  const std::vector<double>& global = call.taps->column_sums[static_cast<size_t>(head)];
  std::vector<double> local(global.size(), 0);
  for (int row = 0; row < call.taps->n_last_rows; ++row) {
    const std::span<const float> weights = call.last_row(head, row);
    for (size_t i = 0; i < local.size(); ++i) local[i] += weights[i];
  }
  const double factor = std::accumulate(local.begin(), local.end(), 0.0) /
                        std::accumulate(global.begin(), global.end(), 0.0);
  std::vector<double> scores(global.size());
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = std::max(factor * global[i], local[i]);
  return scores;
}

struct Head {
  double sparsity = 0;
  double redundancy = 0;
};

// A histogram of cosines; a bin is a share of all pairs.
report::Histogram CosineHistogram(const std::vector<double>& counts) {
  report::Histogram chart = {.x = {.label = "cosine", .from = -1, .to = 1},
                             .y = {.label = "share of pairs", .from = {}, .to = {}},
                             .edges = {},
                             .counts = counts};
  for (int i = 0; i <= kBins; ++i) chart.edges.push_back(-1 + 2.0 * i / kBins);
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  for (double& count : chart.counts) count /= total;
  return chart;
}

void AddTo(std::vector<double>& sums, const std::vector<double>& more) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
}

}  // namespace

Result<std::optional<Findings>> ProbeSparsity(const ProbeTask& original) {
  ProbeTask task = original;
  const cache::CacheShape shape = task.engine.model().cache_shape();
  QkvRecorder recorder(task.engine, {.queries = false, .before_rope = true, .after_rope = false});
  task.session.on_projections = recorder.Hook();
  std::vector<Head> heads(static_cast<size_t>(shape.n_layers) *
                          static_cast<size_t>(shape.n_kv_heads));
  std::vector<double> key_counts(kBins, 0), value_counts(kBins, 0);
  const auto look = [&](const compression::LayerCall& call) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::vector<float> keys = recorder.KeysBeforeRope(call.layer, head);
      const std::vector<float> values = recorder.Values(call.layer, head);
      const Rows k = {keys, shape.key_dim}, v = {values, shape.value_dim};
      const std::vector<double> largest = LargestSimilarity(k, v);
      const auto n_redundant =
          std::count_if(largest.begin(), largest.end(), [](double r) { return r >= kThreshold; });
      Head& found = heads[static_cast<size_t>(call.layer * shape.n_kv_heads + head)];
      const auto n_samples = static_cast<double>(task.samples.size());
      found.sparsity += SparsityRate(GlobalLocal(call, head), kShare) / n_samples;
      found.redundancy +=
          static_cast<double>(n_redundant) / static_cast<double>(largest.size()) / n_samples;
      AddTo(key_counts, Counts(Cosines(k), -1, 1, kBins));
      AddTo(value_counts, Counts(Cosines(v), -1, 1, kBins));
    }
    recorder.Clear();
  };
  WINNOW_ASSIGN(const bool finished,
                WatchSamples(task, {.last_rows = kLocal, .column_sums = true}, look));
  if (!finished) return std::optional<Findings>();

  report::BarChart chart = {.x_label = "layer.head",
                            .categories = {},
                            .y = {.label = "share of entries", .from = 0, .to = 1},
                            .series = {{"sparsity", {}}, {"redundancy", {}}}};
  report::List rows;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      const Head& found = heads[static_cast<size_t>(layer * shape.n_kv_heads + head)];
      chart.categories.push_back(std::to_string(layer) + "." + std::to_string(head));
      chart.series[0].values.push_back(found.sparsity);
      chart.series[1].values.push_back(found.redundancy);
      rows.emplace_back(report::Record{{"layer", layer},
                                       {"kv_head", head},
                                       {"sparsity", found.sparsity},
                                       {"redundancy", found.redundancy}});
    }
  }
  Findings findings;
  findings.summary = {{"share", kShare}, {"threshold", kThreshold}, {"heads", std::move(rows)}};
  findings.text =
      "Heads with much sparsity can lose entries, heads with much redundancy can merge them: both "
      "differ from head to head.";
  findings.figures.push_back(
      {.name = "sparsity",
       .title = "Sparsity and redundancy of every KV head",
       .caption =
           "Sparsity: entries beyond the fewest that make up 95 % of the global-local score. "
           "Redundancy: entries whose key (before RoPE) and value resemble an earlier "
           "entry's, product of cosines at least 0.6. Mean over the samples.",
       .panels = {{"", std::move(chart)}}});
  findings.figures.push_back(
      {.name = "similarity",
       .title = "Cosines of keys and of values",
       .caption = "All pairs of entries of a head, over all layers, heads and samples; keys before "
                  "RoPE.",
       .panels = {{"keys", CosineHistogram(key_counts)},
                  {"values", CosineHistogram(value_counts)}}});
  return std::optional(std::move(findings));
}

}  // namespace winnow::eval

// TreeKV, section 3.3 and Figure 2: the products of attention weight and value of the last query,
// token by token, form a signal; the magnitude of its wavelet details shows how much neighbouring
// tokens differ, by scale and position. The paper leaves two points open. Here the magnitude of a
// vector is the mean magnitude of its dimensions, and the oldest tokens that do not fill a block of
// 2^5 are left out.
#include <algorithm>
#include <cmath>
#include <string>

#include "eval/probes/haar.h"
#include "eval/probes/probe.h"
#include "eval/probes/watch.h"

namespace winnow::eval {
namespace {

constexpr int kLevels = 5;        // [paper]
constexpr int64_t kLeftOut = 32;  // first and last tokens, which are not shown [paper]

class Magnitudes {
 public:
  explicit Magnitudes(int64_t n_tokens)
      : n_(n_tokens / kBlock * kBlock),
        sums_(kLevels, std::vector<double>(static_cast<size_t>(n_), 0)) {}

  void Add(const compression::LayerCall& call) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const auto order = call.order(head);
      const kernels::HeadRows stored = call.cache.values(call.layer, head);
      values_.resize(order.size() * static_cast<size_t>(stored.dim));
      call.backend.ReadRows(stored, order, values_);
      for (int i = 0; i < call.group(); ++i) {
        AddHead(call.last_row(head * call.group() + i, 0), order, stored.dim);
      }
    }
  }

  // [level][token]: means over all heads added. The tokens are the newest n().
  std::vector<std::vector<double>> Means() const {
    std::vector<std::vector<double>> means = sums_;
    for (auto& level : means) {
      for (double& value : level) value /= static_cast<double>(n_heads_);
    }
    return means;
  }
  int64_t n() const { return n_; }

 private:
  static constexpr int64_t kBlock = int64_t{1} << kLevels;

  void AddHead(std::span<const float> weights, std::span<const cache::Slot> order, int dim) {
    const size_t width = static_cast<size_t>(dim);
    const size_t skipped = order.size() - static_cast<size_t>(n_);
    signal_.resize(static_cast<size_t>(n_) * width);
    for (size_t row = 0; row < static_cast<size_t>(n_); ++row) {
      // Weights are indexed by slot; values were read from the oldest to the newest.
      const double weight = weights[static_cast<size_t>(order[skipped + row])];
      for (size_t i = 0; i < width; ++i) {
        signal_[row * width + i] = weight * values_[(skipped + row) * width + i];
      }
    }
    for (int level = 1; level <= kLevels; ++level) {
      const std::vector<double> detail = HaarDetail(signal_, dim, level);
      std::vector<double>& sums = sums_[static_cast<size_t>(level - 1)];
      for (size_t row = 0; row < static_cast<size_t>(n_); ++row) {
        double sum = 0;
        for (size_t i = 0; i < width; ++i) sum += std::abs(detail[row * width + i]);
        sums[row] += sum / dim;
      }
    }
    ++n_heads_;
  }

  int64_t n_;
  int64_t n_heads_ = 0;
  std::vector<std::vector<double>> sums_;
  std::vector<float> values_;
  std::vector<double> signal_;
};

}  // namespace

Result<std::optional<Findings>> ProbeWavelet(const ProbeTask& task) {
  if (task.n_tokens() < 4 * kLeftOut) {
    return Error{"wavelet: samples of " + std::to_string(task.n_tokens()) + " tokens, expected " +
                 std::to_string(4 * kLeftOut) + " or more"};
  }
  Magnitudes magnitudes(task.n_tokens());
  WINNOW_ASSIGN(const bool finished,
                WatchSamples(task, {.last_rows = 1, .reduce = kernels::TapSpec::Reduce::kNone},
                             [&](const auto& call) { magnitudes.Add(call); }));
  if (!finished) return std::optional<Findings>();

  const auto means = magnitudes.Means();
  const int64_t skipped = task.n_tokens() - magnitudes.n();
  report::LineChart chart = {
      .x = {.label = "position, tokens", .from = {}, .to = {}},
      .y = {.label = "magnitude", .scale = report::Scale::kLog10, .from = {}, .to = {}},
      .series = {}};
  report::Record ends;
  for (int level = 1; level <= kLevels; ++level) {
    const std::vector<double>& values = means[static_cast<size_t>(level - 1)];
    const std::string name = "D" + std::to_string(level);
    report::LineChart::Series series = {.name = name, .x = {}, .y = {}};
    for (int64_t i = std::max<int64_t>(0, kLeftOut - skipped); i < magnitudes.n() - kLeftOut; ++i) {
      series.x.push_back(static_cast<double>(skipped + i));
      series.y.push_back(values[static_cast<size_t>(i)]);
    }
    // The ratio of the last quarter of the positions shown to the first.
    const size_t quarter = series.y.size() / 4;
    double early = 0, late = 0;
    for (size_t i = 0; i < quarter; ++i) {
      early += series.y[i];
      late += series.y[series.y.size() - 1 - i];
    }
    ends.Add(name, early > 0 ? report::Value(late / early) : report::Value());
    chart.series.push_back(std::move(series));
  }
  Findings findings;
  findings.summary = {{"last_quarter_over_first", std::move(ends)}};
  findings.text =
      "Where the lines rise to the right, what a token contributes differs the more from its "
      "neighbours the nearer it is: distant tokens can be kept sparsely, near ones densely.";
  findings.figures.push_back(
      {.name = "wavelet",
       .title = "Wavelet details of attention-weighted values",
       .caption = "Five-level Haar decomposition along the positions of weight times value of the "
                  "last query; D1 is the finest scale. Mean over layers, heads and samples, the "
                  "first and last 32 tokens left out.",
       .panels = {{"", std::move(chart)}}});
  return std::optional(std::move(findings));
}

}  // namespace winnow::eval

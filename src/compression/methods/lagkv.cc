// LagKV (arXiv:2504.04704): keeps entries whose keys and values vary much over the dimensions,
// measured in the range of the entries that follow. Needs no attention. After the sinks the text is
// cut into chunks of `lag` entries, each judged by the next. The last whole chunk and the entries
// after it cannot be judged and come first.
// Differs from the paper: the cache grows in decode; chunks shrink when two would exceed the
// budget. As in the paper entries are ranked within their chunk, but the best of all chunks are
// selected together, so that a budget that is no multiple of the chunks is used up.
#include <algorithm>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct LagKvConfig {
  int lag = 128;  // [paper]
  int sinks = 4;  // [port in kvpress; paper: 16]
  bool cross = false;
};

template <class Visitor>
void Visit(LagKvConfig& c, Visitor& v) {
  v("lag", c.lag, "entries per chunk; the next chunk gives the range for scaling",
    Range{1, 1 << 20});
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("cross", c.cross, "rank scores across chunks instead of within each chunk");
}

// Per dimension, the lowest and highest component among the rows of a chunk.
struct Extent {
  std::vector<float> low, high;

  void Measure(std::span<const float> rows, size_t dim) {
    low.assign(rows.begin(), rows.begin() + static_cast<int64_t>(dim));
    high = low;
    for (size_t i = dim; i < rows.size(); ++i) {
      low[i % dim] = std::min(low[i % dim], rows[i]);
      high[i % dim] = std::max(high[i % dim], rows[i]);
    }
  }
};

// Standard deviation over the dimensions of a row, each scaled to the extent's range. Dimensions
// without a range are left out.
double Spread(std::span<const float> row, const Extent& extent) {
  double sum = 0, squares = 0, n = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double range = double{extent.high[i]} - extent.low[i];
    if (range == 0) continue;
    const double x = (double{row[i]} - extent.low[i]) / range;
    sum += x;
    squares += x * x;
    n += 1;
  }
  return n < 2 ? 0 : std::sqrt(std::max(0.0, (squares - sum * sum / n) / (n - 1)));
}

class LagScorer final : public Scorer {
 public:
  explicit LagScorer(const LagKvConfig& config) : c_(config) {}

  std::string_view name() const override { return "lag"; }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    std::fill(out.begin(), out.end(), 1.0);
    const auto lag = static_cast<size_t>(BlockUnder(call.budget, c_.sinks, c_.lag));
    const size_t n_chunks = out.size() / lag;
    if (n_chunks < 2) return;
    const std::span<double> judged = out.first((n_chunks - 1) * lag);
    const std::span<const Slot> entries =
        call.order(kv_head).subspan(static_cast<size_t>(region.begin), n_chunks * lag);
    std::fill(judged.begin(), judged.end(), 0.0);
    AddScores(call, call.cache.keys(call.layer, kv_head), entries, lag, judged);
    AddScores(call, call.cache.values(call.layer, kv_head), entries, lag, judged);
    if (c_.cross) return;
    for (size_t first = 0; first < judged.size(); first += lag) {
      ToRankShare(call, judged.subspan(first, lag));
    }
  }

 private:
  // Adds half of the score that keys or values give to the entries of all chunks but the last.
  static void AddScores(const LayerCall& call, const kernels::HeadRows& rows,
                        std::span<const Slot> entries, size_t lag, std::span<double> scores) {
    const auto dim = static_cast<size_t>(rows.dim);
    std::vector<float> chunk(lag * dim), next(lag * dim);
    std::vector<double> spreads(lag);
    Extent extent;
    call.backend.ReadRows(rows, entries.first(lag), chunk);
    for (size_t first = 0; first < scores.size(); first += lag) {
      call.backend.ReadRows(rows, entries.subspan(first + lag, lag), next);
      extent.Measure(next, dim);
      for (size_t i = 0; i < lag; ++i) {
        spreads[i] = Spread(std::span<const float>(chunk).subspan(i * dim, dim), extent);
      }
      Softmax(spreads);
      for (size_t i = 0; i < lag; ++i) scores[first + i] += spreads[i] / 2;
      std::swap(chunk, next);
    }
  }

  // Replaces scores by the share of the chunk's entries that are worse.
  static void ToRankShare(const LayerCall& call, std::span<double> scores) {
    std::vector<int32_t>& order = call.scratch.indices;
    order.resize(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), WorstFirst{scores});
    std::vector<double>& places = call.scratch.numbers;
    places.resize(scores.size());
    for (size_t place = 0; place < order.size(); ++place) {
      places[static_cast<size_t>(order[place])] =
          static_cast<double>(place) / static_cast<double>(scores.size());
    }
    std::copy(places.begin(), places.end(), scores.begin());
  }

  LagKvConfig c_;
};

Result<MethodPtr> Make(const LagKvConfig& c) {
  const Regions regions = {.sinks = c.sinks, .recent = 0};
  return Compose({.min_budget = regions.MinBudget(),
                  .score = std::make_shared<LagScorer>(c),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = regions,
                  .when = When::kPrefill});
}

Promise Promises(const LagKvConfig& c, int64_t) {
  return {.exact = true, .sinks = c.sinks, .recent = 1};
}

}  // namespace

MethodEntry LagKv() {
  return Entry<LagKvConfig, Make, Promises>(
      "lagkv", "keys and values that vary more than those that follow them",
      "LagKV, arXiv:2504.04704");
}

}  // namespace winnow::compression::methods

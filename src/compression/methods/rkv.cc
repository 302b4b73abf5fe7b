// R-KV (arXiv:2505.24133): keeps what the last queries attend to, unless the key repeats other
// keys.
//  score = lambda * maxpool(attention of the last `window` queries) - (1 - lambda) * redundancy
// The redundancy of a key is the softmax over all entries of its mean cosine to them. A key's
// cosine to the newest key that is more similar than `threshold` does not count, so that the newest
// of several similar entries stays.
// Differs from the authors' code: the maximum over a group's query heads is that of weights, not of
// logits, which taps do not have; a key without a similar key keeps all its cosines (the code
// clears the one to the oldest entry).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/pool.h"
#include "compression/score/score.h"
#include "compression/score/stored_keys.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct RkvConfig {
  int sinks = 0;            // [TreeKV's experiments: 4]
  CountOrShare recent = 0;  // if more than the window  [same: a share of 0.5]
  int window = 8;           // [code; paper: alpha]
  int kernel = 7;           // [code]
  double lambda = 0.07;     // [code; paper: 0.1]
  double threshold = 0.5;   // [code]
  int buffer = 128;         // [paper]
  bool decode = true;
  score::Reduce reduce = score::Reduce::kMax;  // [code]
};

template <class Visitor>
void Visit(RkvConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
  v("window", c.window, "newest tokens that vote, and stay", Range{1, 64});
  v("kernel", c.kernel, "smoothing width of the votes (maximum), odd", Range{1, score::kMaxKernel});
  v("lambda", c.lambda, "weight of attention; the rest is that of redundancy", Range{0, 1});
  v("threshold", c.threshold, "cosine above which two keys are similar", Range{-1, 1});
  v("buffer", c.buffer,
    "extra entries evicted at once in decode; at most half of the budget, or of what the regions "
    "leave of it",
    Range{1, 1 << 20});
  v("decode", c.decode, "evict while generating too");
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

// Number of newest tokens that vote.
int64_t VotersUnder(const RkvConfig& c, int64_t budget) {
  return WindowUnder(budget - c.sinks, c.window);
}

Protect WithVoters(const RkvConfig& c, Protect regions, int64_t budget) {
  regions.recent = std::max(regions.recent, VotersUnder(c, budget));
  return regions;
}

constexpr int kNextRow = 0;  // layer number: ring buffer index of the next row

// Unit vectors of the keys of one KV head, oldest first; zero where a key is zero. Stored in the
// call's Scratch.
class UnitKeys {
 public:
  UnitKeys(const LayerCall& call, int kv_head)
      : dim_(static_cast<size_t>(call.cache.keys(call.layer, kv_head).dim)),
        rows_(call.scratch.floats) {
    const auto n = static_cast<size_t>(call.n_slots(kv_head));
    rows_.resize(n * dim_);
    call.backend.ReadRows(call.cache.keys(call.layer, kv_head), call.order(kv_head), rows_);
    for (size_t i = 0; i < n; ++i) {
      const std::span<float> key = std::span(rows_).subspan(i * dim_, dim_);
      const double norm = std::sqrt(score::SquareNorm(key));
      for (float& x : key) x = norm == 0 ? 0 : static_cast<float>(x / norm);
    }
  }
  size_t size() const { return rows_.size() / dim_; }
  std::span<const float> operator[](size_t i) const {
    return std::span(rows_).subspan(i * dim_, dim_);
  }
  // In eight interleaved sums, which compilers vectorize.
  double Cosine(size_t i, size_t j) const {
    const std::span<const float> a = (*this)[i], b = (*this)[j];
    std::array<float, 8> sums = {};
    size_t d = 0;
    for (; d + sums.size() <= dim_; d += sums.size()) {
      for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += a[d + lane] * b[d + lane];
    }
    double sum = 0;
    for (; d < dim_; ++d) sum += double{a[d]} * b[d];
    for (const float one : sums) sum += one;
    return sum;
  }

 private:
  size_t dim_;
  std::vector<float>& rows_;
};

// [entry] mean cosine to all other entries, where each entry's cosine to its newest similar key is
// left out. The result is in `numbers`.
std::span<double> Redundancy(const UnitKeys& keys, double threshold, std::vector<double>& numbers) {
  const size_t n = keys.size();
  const size_t dim = n == 0 ? 0 : keys[0].size();
  numbers.assign(dim + n, 0.0);
  const std::span<double> sum = std::span(numbers).first(dim);
  const std::span<double> out = std::span(numbers).subspan(dim);
  for (size_t i = 0; i < n; ++i) {
    for (size_t d = 0; d < sum.size(); ++d) sum[d] += keys[i][d];
  }
  for (size_t j = 0; j < n; ++j) {
    out[j] = -keys.Cosine(j, j);
    for (size_t d = 0; d < sum.size(); ++d) out[j] += sum[d] * keys[j][d];
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = n; j-- > 0;) {
      if (j == i) continue;
      const double cosine = keys.Cosine(i, j);
      if (!(cosine > threshold)) continue;
      out[j] -= cosine;
      break;
    }
  }
  for (double& one : out) one /= static_cast<double>(n);
  return out;
}

class RedundancyScorer final : public Scorer {
 public:
  explicit RedundancyScorer(const RkvConfig& config) : c_(config) {}

  std::string_view name() const override { return "redundancy"; }
  bool shares_threads() const override { return true; }
  Needs needs() const override {
    const auto reduce = score::TapReduceFrom(c_.reduce);
    return {.prefill = {.last_rows = c_.window, .reduce = reduce},
            .decode = {.last_rows = c_.decode ? 1 : 0, .reduce = reduce},
            .state = {.n_half_columns = c_.window, .n_layer_numbers = 1}};
  }

  // Stores the last rows of attention in a ring buffer of columns.
  void Observe(const LayerCall& call) const override {
    const int n_rows = std::min(call.taps->n_last_rows, c_.window);
    double& next_row = call.layer_number(kNextRow);
    const int begin = static_cast<int>(CountFrom(next_row) % c_.window);
    for (int head = 0; n_rows > 0 && head < call.n_kv_heads(); ++head) {
      for (int i = 0; i < n_rows; ++i) {
        const std::span<const float> row = call.last_row(head, call.taps->n_last_rows - n_rows + i);
        const std::span<Half> column = call.half_column(head, (begin + i) % c_.window);
        for (const Slot slot : call.order(head)) {
          column[static_cast<size_t>(slot)] = Half(row[static_cast<size_t>(slot)]);
        }
      }
    }
    next_row = (begin + n_rows) % c_.window;
  }

  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const std::vector<double>& votes = Votes(call, kv_head);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = score::MaxNear(votes, region.begin + static_cast<int64_t>(i), c_.kernel);
    }
    const std::span<double> redundancy =
        Redundancy(UnitKeys(call, kv_head), c_.threshold, call.scratch.numbers);
    Softmax(redundancy);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] =
          c_.lambda * out[i] - (1 - c_.lambda) * redundancy[static_cast<size_t>(region.begin) + i];
    }
  }

 private:
  // [rank before the window] Mean of the window's rows, each divided by its mass before the window.
  // Stored in the call's Scratch.
  const std::vector<double>& Votes(const LayerCall& call, int kv_head) const {
    const std::span<const Slot> order = call.order(kv_head);
    const auto window = static_cast<int>(VotersUnder(c_, call.budget));
    std::vector<double>& votes = call.scratch.numbers;
    votes.assign(order.size() - std::min(order.size(), static_cast<size_t>(window)), 0.0);
    const int next = static_cast<int>(CountFrom(call.layer_number(kNextRow)) % c_.window);
    int n_rows = 0;
    for (int i = 1; i <= window; ++i) {
      const std::span<const Half> row =
          call.half_column(kv_head, (next - i + c_.window) % c_.window);
      const auto weight = [&](size_t rank) {
        return double{static_cast<float>(row[static_cast<size_t>(order[rank])])};
      };
      double mass = 0;
      for (size_t rank = 0; rank < votes.size(); ++rank) mass += weight(rank);
      if (!(mass > 0)) continue;
      ++n_rows;
      for (size_t rank = 0; rank < votes.size(); ++rank) votes[rank] += weight(rank) / mass;
    }
    for (double& one : votes) one /= std::max(n_rows, 1);
    return votes;
  }

  RkvConfig c_;
};

// Holds the budget after a prompt. In decode a head over the budget makes room for `buffer` tokens,
// but evicts at most half of the budget, or, with configured regions, of what these leave of it.
class BufferBudgeter final : public Budgeter {
 public:
  BufferBudgeter(int64_t buffer, bool regions) : buffer_(buffer), regions_(regions) {}

  std::string_view name() const override { return "buffer"; }
  void Sizes(const BudgetInput& input, std::span<int64_t> out) const override {
    const int64_t budget = input.call.budget;
    for (size_t head = 0; head < out.size(); ++head) {
      const int64_t n = input.call.n_slots(static_cast<int>(head));
      const bool leap = input.call.phase == Phase::kDecode && n > budget;
      const int64_t max_extra = (budget - (regions_ ? input.n_protected : 0)) / 2;
      const int64_t size = budget - (leap ? std::min(buffer_, max_extra) : 0);
      out[head] = std::max<int64_t>(0, std::max<int64_t>(1, size) - input.n_protected);
    }
  }

 private:
  int64_t buffer_;
  bool regions_;
};

Result<MethodPtr> Make(const RkvConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("rkv", c.kernel));
  const Regions regions = {.sinks = c.sinks, .recent = c.recent};
  const bool asked = c.sinks > 0 || !(c.recent == CountOrShare(0));
  return Compose(
      {.min_budget = std::max<int64_t>(c.sinks + 2, regions.MinBudget()),
       .score = std::make_shared<RedundancyScorer>(c),
       .budget = std::make_shared<BufferBudgeter>(c.buffer, asked),
       .select = select::TopK(),
       .merge = nullptr,
       .protect = [c](const Protect& configured,
                      const LayerCall& call) { return WithVoters(c, configured, call.budget); },
       .protected_entries = regions,
       .when = c.decode ? When::kStep : When::kPrefill});
}

Promise Promises(const RkvConfig& c, int64_t budget) {
  const Protect regions = WithVoters(c, Regions{c.sinks, c.recent}.Under(budget), budget);
  return {
      .exact = false, .sinks = regions.sinks, .recent = regions.recent, .prompt_by_steps = false};
}

}  // namespace

MethodEntry Rkv() {
  return Entry<RkvConfig, Make, Promises>(
      "rkv", "entries that the newest tokens attend to and whose keys are not similar to others",
      "R-KV, arXiv:2505.24133", {"sinks=4,recent=0.5", "window=2,buffer=1"});
}

}  // namespace winnow::compression::methods

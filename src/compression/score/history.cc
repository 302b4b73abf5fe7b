#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "compression/numbers.h"
#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

// A column is a double, which holds integers exactly up to 2^53: it stores the bits of this many
// rows.
constexpr int kRowsPerColumn = 52;
constexpr int kNextRow = 0;  // layer number: index in the ring for the next row

// A session file may contain any number.
uint64_t Bits(double column) {
  return static_cast<uint64_t>(CountFrom(column, (int64_t{1} << kRowsPerColumn) - 1));
}

class HistoryScorer final : public Scorer {
 public:
  explicit HistoryScorer(const HistoryConfig& config) : c_(config) { WINNOW_CHECK(c_.window >= 1); }

  std::string_view name() const override { return "history"; }
  Needs needs() const override {
    return {.prefill = {.last_rows = c_.window, .reduce = TapReduceFrom(c_.reduce)},
            .decode = {.last_rows = 1, .reduce = TapReduceFrom(c_.reduce)},
            .state = {.n_columns = n_columns(), .n_layer_numbers = 1}};
  }

  // The history is a ring of rows. An entry keeps one bit per row: whether it got less than an
  // equal share.
  void Observe(const LayerCall& call) const override {
    const int n_rows = std::min(call.taps->n_last_rows, c_.window);
    double& next_row = call.layer_number(kNextRow);
    const int begin = static_cast<int>(CountFrom(next_row) % c_.window);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::span<const Slot> order = call.order(head);
      for (int i = 0; i < n_rows; ++i) {
        const int place = (begin + i) % c_.window;
        const uint64_t bit = uint64_t{1} << (place % kRowsPerColumn);
        const std::span<double> column = call.column(head, place / kRowsPerColumn);
        const std::span<const float> row = call.last_row(head, call.taps->n_last_rows - n_rows + i);
        // The row's query does not see newer entries.
        const size_t n_visible = order.size() - static_cast<size_t>(n_rows - 1 - i);
        const double low = 1 / static_cast<double>(n_visible);
        for (size_t rank = 0; rank < n_visible; ++rank) {
          const auto slot = static_cast<size_t>(order[rank]);
          uint64_t bits = Bits(column[slot]) & ~bit;
          if (row[slot] < low) bits |= bit;
          column[slot] = static_cast<double>(bits);
        }
      }
    }
    next_row = (begin + n_rows) % c_.window;
  }

  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const std::span<const Slot> order = call.order(kv_head);
    for (double& score : out) score = 0;
    for (int i = 0; i < n_columns(); ++i) {
      const std::span<const double> column = call.column(kv_head, i);
      for (size_t x = 0; x < out.size(); ++x) {
        const Slot slot = order[static_cast<size_t>(region.begin) + x];
        out[x] -= std::popcount(Bits(column[static_cast<size_t>(slot)]));
      }
    }
  }

 private:
  int n_columns() const { return (c_.window + kRowsPerColumn - 1) / kRowsPerColumn; }

  HistoryConfig c_;
};

}  // namespace

ScorerPtr History(const HistoryConfig& config) { return std::make_shared<HistoryScorer>(config); }

}  // namespace winnow::compression::score

// winnow as a whole against plain loops (winnow_testing.h): several layers, grouped query heads, an
// output projection, norms of the residual stream; prompts in one and in several calls, replays in
// one and in several passes; every feature with and without the others.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/methods/winnow_testing.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using plain::Curve;
using plain::Entry;
using plain::Query;
using plain::Vec;
using testing::Harness;
using testing::RandomVector;
using Positions = std::vector<Position>;

constexpr int kLayers = 2, kHeads = 2, kGroup = 3, kDim = 4, kModelDim = 5, kAll = kLayers * kHeads;
constexpr int64_t kReplayed = 50, kRows = 18;  // rows of a replay, and reference rows of these

std::vector<float> Key(int layer, int head, Position p) {
  return RandomVector({1, layer, head, p}, kDim);
}
std::vector<float> Value(int layer, int head, Position p) {
  return RandomVector({2, layer, head, p}, kDim);
}
// Some heads have sharper attention than others.
std::vector<float> QueryVector(int layer, int q_head, Position p) {
  std::vector<float> query = RandomVector({3, layer, q_head, p}, kDim);
  for (float& x : query) x *= static_cast<float>(1 + layer + 2 * (q_head / kGroup));
  return query;
}
std::vector<float> Projection(int layer, int q_head) {
  return RandomVector({4, layer, q_head}, kModelDim * kDim);
}
double Norm(int layer, int64_t row) {
  return static_cast<float>(0.5 + 2 * testing::Random({5, layer, row}));
}
Vec Wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

struct Form {
  std::string more = {};  // parameters
  bool replay = true, profile = false, uniform = false, top_k = false, refit = true;
  bool projected = true;  // false: as in recordings, which have no output projection
  double rest = 0.1;
  int64_t n_passes = 1;
  int64_t budget = 12;
  std::vector<int64_t> calls = {60};  // tokens of each
};

class WinnowTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWindow = 8;

  WinnowTest() : profiles_(kLayers, kHeads) {
    for (const EntryOrder order : {EntryOrder::kReplay, EntryOrder::kWindow}) {
      for (int i = 0; i < kAll; ++i) {
        profiles_.For(order).Set(i / kHeads, i % kHeads, MakeProfile(order, i));
      }
    }
  }

  // Falls as the size grows, at different rates for different heads, and is not convex.
  static Vec MakeProfile(EntryOrder order, int head) {
    Vec errors;
    for (int i = 0; i < ErrorProfile::kPoints; ++i) {
      errors.push_back(i * i * (1 + head) * (0.5 + testing::Random({6, int64_t{head}, i})) /
                       (order == EntryOrder::kReplay ? 1.0 + head : 3.0));
    }
    return errors;
  }

  void Run(const Form& form) {
    SCOPED_TRACE("budget " + std::to_string(form.budget) + ", passes " +
                 std::to_string(form.n_passes) + ", " + form.more);
    form_ = form;
    heads_.assign(kAll, {});
    for (int i = 0; i < kAll; ++i) {
      for (int g = 0; g < kGroup; ++g) {
        const Vec all = Wide(Projection(i / kHeads, i % kHeads * kGroup + g));
        auto& rows = heads_[static_cast<size_t>(i)].projections.emplace_back();
        for (auto at = all.begin(); at != all.end(); at += kDim) rows.emplace_back(at, at + kDim);
        if (!form.projected) rows = plain::Identity(kDim);
      }
    }
    const std::string parameters =
        std::string("queries=") + (form.replay ? "replay" : "window") + ",allocation=" +
        (form.profile   ? "profile"
         : form.uniform ? "uniform"
         : form.top_k   ? "top-k"
                        : "curves") +
        ",rest=" + std::to_string(form.rest) + ",refit=" + (form.refit ? "true" : "false") +
        ",rows=" + std::to_string(kRows) + ",window=" + std::to_string(kWindow) + form.more;
    harness_ = std::make_unique<Harness>(testing::Make(Winnow(), parameters),
                                         testing::HarnessConfig{.n_layers = kLayers,
                                                                .n_q_heads = kHeads * kGroup,
                                                                .n_kv_heads = kHeads,
                                                                .dim = kDim,
                                                                .budget = form.budget});
    harness_->SetKeys(Key);
    harness_->SetValues(Value);
    harness_->SetQueries(QueryVector);
    if (form.projected) harness_->SetProjection(kModelDim, Projection);
    harness_->SetProfiles(profiles_);
    if (form.replay) {
      harness_->SetReplay(kReplayed,
                          [this](const testing::Cell& cell) { return ReplayWeight(cell); }, Norm,
                          {.n = form.n_passes, .first = 0});
    }
    n_seen_ = 0;
    for (const int64_t n : form.calls) {
      if (!HasFatalFailure()) Call(n);
    }
  }

  void Call(int64_t n) {
    for (int i = 0; i < kAll; ++i) {
      for (int64_t t = n_seen_; t < n_seen_ + n; ++t) {
        heads_[static_cast<size_t>(i)].entries.push_back(NewEntry(i, t));
      }
    }
    n_seen_ += n;
    n_call_ = n;
    for (int i = 0; i < kAll; ++i) form_.replay ? Replay(i) : UseWindow(i);
    harness_->Prefill(n, [](const testing::Cell&) { return 0.0; });
    if (n_seen_ > form_.budget) Decide();
    for (int i = 0; i < kAll; ++i) Compare(i);
  }

  static Entry NewEntry(int i, int64_t position) {
    const auto p = static_cast<Position>(position);
    return {p, Wide(Key(i / kHeads, i % kHeads, p)), Wide(Value(i / kHeads, i % kHeads, p)), 0};
  }

  Query MakeQuery(int i, int g, int64_t position) const {
    return {.head = g,
            .q = Wide(
                QueryVector(i / kHeads, i % kHeads * kGroup + g, static_cast<Position>(position)))};
  }

  // All rows of the replay raise scores. Evenly spaced ones, in the middles of equal parts, are
  // kept.
  void Replay(int i) {
    plain::Head& head = heads_[static_cast<size_t>(i)];
    head.queries.clear();
    head.scores.clear();
    int64_t n_kept = 0;
    for (int64_t row = 0; row < kReplayed; ++row) {
      int64_t first = 0;  // of the pass
      for (int64_t pass = 0; pass < form_.n_passes; ++pass) {
        const int64_t begin = pass * kReplayed / form_.n_passes;
        if (begin <= row) first = begin;
      }
      const bool kept = n_kept < kRows && row == (2 * n_kept + 1) * kReplayed / (2 * kRows);
      for (int g = 0; g < kGroup; ++g) {
        Query query = MakeQuery(i, g, n_seen_ + row);
        query.row = n_kept;
        query.rho = Norm(i / kHeads, row);
        for (int64_t t = first; t <= row; ++t) query.own.push_back(NewEntry(i, n_seen_ + t));
        head.RaiseScores(query);
        replay_weights_[static_cast<size_t>(i)][static_cast<size_t>(row)][static_cast<size_t>(g)] =
            plain::AttentionWeights(query, head.entries);
        if (kept) head.queries.push_back(query);
      }
      if (kept) ++n_kept;
    }
  }

  // The weights that the harness gives the method.
  double ReplayWeight(const testing::Cell& cell) const {
    if (cell.position >= n_seen_) return 0;
    const auto i = static_cast<size_t>(cell.layer * kHeads + cell.q_head / kGroup);
    const auto g = static_cast<size_t>(cell.q_head % kGroup);
    return replay_weights_[i][static_cast<size_t>(cell.query)][g][static_cast<size_t>(cell.rank)];
  }

  int64_t n_rest() const {
    return form_.rest > 0 ? std::max<int64_t>(1, std::llround(form_.rest * double(form_.budget)))
                          : 0;
  }
  int64_t window() const {
    const int64_t n = form_.budget > kWindow ? kWindow : std::max<int64_t>(1, form_.budget / 2);
    return std::min({n, form_.budget - n_rest(), n_call_});
  }

  // Uses the prompt's last rows. Their norms are not known.
  void UseWindow(int i) {
    plain::Head& head = heads_[static_cast<size_t>(i)];
    head.queries.clear();
    head.scores.clear();
    for (int64_t row = 0; row < window(); ++row) {
      for (int g = 0; g < kGroup; ++g) {
        Query query = MakeQuery(i, g, n_seen_ - window() + row);
        query.row = row;
        query.n_unseen = window() - 1 - row;
        head.RaiseScores(query);
        head.queries.push_back(query);
      }
    }
  }

  void Decide() {
    const int64_t n_recent = form_.replay ? 0 : window();
    int64_t n_held = 0;
    for (const plain::Head& head : heads_) n_held += std::ssize(head.entries) - n_call_;
    // Entries of earlier calls shrink to the share of their part of the text.
    const int64_t total = (form_.budget - n_rest()) * kAll;
    const int64_t of_call = std::max(total * n_call_ / n_seen_, n_recent * kAll);
    const int64_t n_old = std::min(total - of_call, n_held);
    const int64_t n_new = total - n_old - n_recent * kAll;
    const int64_t floor = std::min(std::max<int64_t>(1, form_.budget / 10), n_new / kAll);

    std::vector<std::vector<int64_t>> fixed(kAll), orders(kAll);
    std::vector<Curve> curves;
    for (size_t i = 0; i < kAll; ++i) {
      const plain::Head& head = heads_[i];
      const int64_t n = std::ssize(head.entries), n_before = n - n_call_;
      const std::vector<int64_t> old = head.Order(0, n_before);
      const int64_t n_stay = n_held == 0 ? 0 : n_before * n_old / n_held;
      NoteCut(head, old, n_stay);
      fixed[i].assign(old.begin(), old.begin() + n_stay);
      for (int64_t rank = n - n_recent; rank < n; ++rank) fixed[i].push_back(rank);
      orders[i] = head.Order(n_before, n - n_recent);
      curves.push_back(form_.profile ? ProfileCurve(static_cast<int>(i), std::ssize(orders[i]))
                                     : head.Errors(fixed[i], orders[i]));
    }
    std::vector<int64_t> sizes(kAll, n_new / kAll);
    if (form_.top_k) sizes = BestOfAll(orders, floor, n_new);
    if (!form_.uniform && !form_.top_k) sizes = plain::Fill(curves, floor, n_new, margin_);
    for (size_t i = 0; i < kAll; ++i) {
      plain::Head& head = heads_[i];
      if (!form_.top_k) NoteCut(head, orders[i], sizes[i]);
      std::vector<bool> stays(head.entries.size());
      for (const int64_t rank : fixed[i]) stays[static_cast<size_t>(rank)] = true;
      for (int64_t j = 0; j < std::min(sizes[i], std::ssize(orders[i])); ++j) {
        stays[static_cast<size_t>(orders[i][static_cast<size_t>(j)])] = true;
      }
      if (sizes[i] != sizes[0]) ++n_unequal_;
      head.Shrink(stays, n_rest());
      TakeBiases(static_cast<int>(i));
      if (form_.refit) ++(head.Refit(margin_) ? n_refitted_ : n_left_);
    }
  }

  void NoteCut(const plain::Head& head, const std::vector<int64_t>& order, int64_t n) {
    if (n <= 0 || n >= std::ssize(order)) return;
    const auto score = [&](int64_t at) {
      return head.scores[static_cast<size_t>(order[static_cast<size_t>(at)])];
    };
    margin_.Note(score(n - 1), score(n));
  }

  std::vector<int64_t> BestOfAll(const std::vector<std::vector<int64_t>>& orders, int64_t floor,
                                 int64_t total) {
    std::vector<int64_t> sizes(kAll, floor);
    Vec scores;
    for (size_t i = 0; i < kAll; ++i) {
      for (size_t j = static_cast<size_t>(floor); j < orders[i].size(); ++j) {
        scores.push_back(heads_[i].scores[static_cast<size_t>(orders[i][j])]);
      }
    }
    std::ranges::sort(scores, std::greater<>());
    const auto n = static_cast<size_t>(total - floor * kAll);
    margin_.Note(scores[n - 1], scores[n]);
    for (size_t i = 0; i < kAll; ++i) {
      for (size_t j = static_cast<size_t>(floor); j < orders[i].size(); ++j) {
        if (heads_[i].scores[static_cast<size_t>(orders[i][j])] > scores[n]) ++sizes[i];
      }
    }
    return sizes;
  }

  // The profile's points for n entries, smallest first; down to size 1 the error of the first
  // holds.
  Curve ProfileCurve(int head, int64_t n) const {
    const Vec errors = MakeProfile(form_.replay ? EntryOrder::kReplay : EntryOrder::kWindow, head);
    Curve curve;
    for (int i = ErrorProfile::kPoints - 1; i >= 0; --i) {
      const auto size = std::llround(std::pow(2.0, -i / 3.0) * static_cast<double>(n));
      if (size < 1) continue;
      if (curve.empty() && size > 1) curve.push_back({1, errors.back()});
      if (curve.empty() || curve.back().size < size) {
        curve.push_back({size, errors[static_cast<size_t>(i)]});
      }
    }
    return curve;
  }

  // Biases are stored as halves with 11 bits of precision: the plain ones may differ by half a unit
  // in the last place, and continue as stored.
  void TakeBiases(int i) {
    const std::span<const Slot> order = harness_->cache().order(i / kHeads, i % kHeads);
    std::vector<Entry>& entries = heads_[static_cast<size_t>(i)].entries;
    ASSERT_EQ(order.size(), entries.size()) << "head " << i;
    for (size_t rank = 0; rank < entries.size() && form_.rest > 0; ++rank) {
      const double stored = harness_->cache().half_column(i / kHeads, i % kHeads,
                                                          0)[static_cast<size_t>(order[rank])];
      ASSERT_NEAR(stored, entries[rank].bias, std::fabs(entries[rank].bias) / 2048 + 2e-5)
          << "head " << i << ", rank " << rank;
      if (stored != 0) ++n_biases_;
      entries[rank].bias = stored;
    }
  }

  // Fitted values solve equations in floats (2^-24). Their condition number is at most the number
  // of equations plus one, because the ridge is the mean of the diagonal: 45 * 2^-24 = 3e-6, times
  // the error of sums over some hundred weights. Later calls start from what earlier ones left.
  static constexpr double kTolerance = 1e-4;

  void Compare(int i) {
    const plain::Head& head = heads_[static_cast<size_t>(i)];
    Positions kept;
    for (const Entry& entry : head.entries) kept.push_back(entry.position);
    ASSERT_EQ(harness_->Kept(i / kHeads, i % kHeads), kept) << "head " << i;
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      const auto at = static_cast<int64_t>(rank);
      const Vec key = Wide(harness_->Key(at, i / kHeads, i % kHeads));
      const Vec value = Wide(harness_->Value(at, i / kHeads, i % kHeads));
      for (size_t d = 0; d < kDim; ++d) {
        ASSERT_NEAR(key[d], head.entries[rank].key[d], kTolerance) << "head " << i;
        ASSERT_NEAR(value[d], head.entries[rank].value[d], kTolerance) << "head " << i;
      }
    }
  }

  // No decision was so close that float rounding, about 1e-6 in sums of some hundred weights, could
  // reverse it.
  void TearDown() override { EXPECT_GT(margin_.smallest(), 5e-6); }

  Form form_;
  ErrorProfiles profiles_;
  std::unique_ptr<Harness> harness_;
  std::vector<plain::Head> heads_;  // [layer, kv_head]
  std::array<std::array<std::array<Vec, kGroup>, kReplayed>, kAll> replay_weights_;
  int64_t n_seen_ = 0, n_call_ = 0;
  plain::Margin margin_;
  int n_unequal_ = 0, n_biases_ = 0, n_refitted_ = 0, n_left_ = 0;  // counts of each case
};

TEST_F(WinnowTest, DefaultsAgreeWithPlainLoops) {
  for (const int64_t budget : {2, 5, 12, 20, 30}) Run({.budget = budget});
  EXPECT_TRUE(n_unequal_ > 0 && n_biases_ > 0 && n_refitted_ > 0 && n_left_ > 0)
      << n_unequal_ << " " << n_biases_ << " " << n_refitted_ << " " << n_left_;
}

TEST_F(WinnowTest, ReplayInSeveralPasses) {
  for (const int64_t n : {2, 3}) Run({.n_passes = n});
}

// The entries that earlier calls left have biases and fitted values.
TEST_F(WinnowTest, PromptsInSeveralCalls) {
  Run({.calls = {40, 20, 7, 1, 25}});
  Run({.budget = 25, .calls = {20, 20, 30}});
  Run({.replay = false, .budget = 20, .calls = {40, 20, 9, 25}});
}

TEST_F(WinnowTest, Profile) {
  for (const bool replay : {true, false}) {
    for (const int64_t budget : {12, 20}) {
      Run({.replay = replay, .profile = true, .budget = budget});
      Run({.replay = replay, .profile = true, .budget = budget, .calls = {40, 30}});
    }
  }
  EXPECT_GT(n_unequal_, 0);
}

// After a replay or for the prompt's window.
TEST_F(WinnowTest, WithAndWithoutEachFeature) {
  for (const bool replay : {true, false}) {
    n_biases_ = n_refitted_ = 0;
    for (Form form : {Form{},
                      {.rest = 0},
                      {.refit = false, .rest = 0.3},
                      {.refit = false, .rest = 0},
                      {.uniform = true},
                      {.top_k = true},
                      {.projected = false},
                      {.refit = false, .projected = false, .rest = 0}}) {
      for (const int64_t budget : {5, 8, 13, 20}) {
        form.replay = replay;
        form.budget = budget;
        Run(form);
      }
    }
    EXPECT_TRUE(n_biases_ > 0 && n_refitted_ > 0) << n_biases_ << " " << n_refitted_;
  }
}

}  // namespace
}  // namespace winnow::compression::methods

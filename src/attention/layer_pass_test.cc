#include "attention/layer_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kernels/backends.h"

namespace winnow::attention {
namespace {

using cache::Cache;
using cache::Position;
using kernels::Matrix;
using Floats = std::vector<float>;

constexpr int kDim = 4;
constexpr int kQueryHeads = 2;
constexpr int64_t kRows = 12;  // of all sequences together

class LayerPassTest : public ::testing::Test {
 protected:
  LayerPassTest() {
    Rng rng(7);
    for (Buffer* buffer : {&q_, &k_, &v_, &out_}) {
      const int64_t cols = buffer == &q_ || buffer == &out_ ? kQueryHeads * kDim : kDim;
      buffer->storage = backend_->Allocate(kRows * cols * int64_t{sizeof(float)}).value();
      buffer->all = {buffer->storage.get(), 0, kRows, cols, cols};
      Floats values(static_cast<size_t>(kRows * cols));
      for (float& value : values) value = static_cast<float>(2 * rng.Uniform() - 1);
      backend_->Write(buffer->all, values);
    }
  }

  std::unique_ptr<Cache> NewCache(int64_t capacity = 100) {
    return Cache::Make(
               *backend_,
               {.shape = {.n_layers = 1, .n_kv_heads = 1, .key_dim = kDim, .value_dim = kDim},
                .key_type = kernels::TensorType::kF32,
                .value_type = kernels::TensorType::kF32,
                .capacity = capacity})
        .value();
  }

  LayerPass::Rows Block(int64_t first, int64_t n) {
    return {.q = q_.all.Rows(first, n),
            .k = k_.all.Rows(first, n),
            .v = v_.all.Rows(first, n),
            .out = out_.all.Rows(first, n),
            .positions =
                std::span(positions_).subspan(static_cast<size_t>(first), static_cast<size_t>(n))};
  }

  Floats Outputs() {
    Floats values(kRows * kQueryHeads * kDim);
    backend_->Read(out_.all, values);
    return values;
  }

  // Runs sequences with these numbers of rows, one after another, in row blocks. Records the taps
  // and order of after_layer.
  Floats Run(const std::vector<int64_t>& n_rows, int64_t row_block, LayerPass::Attend attend = {}) {
    LayerPass pass(*backend_, {.n_heads = kQueryHeads, .key_dim = kDim, .scale = 0.5},
                   std::move(attend));
    std::vector<Sequence> sequences(n_rows.size());
    std::vector<LayerPass::Span> spans;
    caches_.clear();
    done_order_.clear();
    taps_.assign(n_rows.size(), {});
    positions_.clear();
    for (size_t i = 0; i < n_rows.size(); ++i) {
      caches_.push_back(NewCache());
      sequences[i] = {.cache = caches_[i].get(), .taps = spec_};
      sequences[i].after_layer = [this, i](const LayerDone& done) -> Result<void> {
        done_order_.push_back(static_cast<int>(i));
        taps_[i] = done.taps;
        return {};
      };
      spans.push_back({.sequence = &sequences[i], .n_rows = n_rows[i]});
      for (int64_t row = 0; row < n_rows[i]; ++row) {
        positions_.push_back(static_cast<Position>(row));
      }
    }
    pass.Start(0, rope_, spans);
    const auto n = static_cast<int64_t>(positions_.size());
    for (int64_t first = 0; first < n; first += row_block) {
      const auto done = pass.Run(Block(first, std::min(row_block, n - first)));
      EXPECT_TRUE(done.has_value()) << done.error().message;
    }
    return Outputs();
  }

  struct Buffer {
    std::unique_ptr<kernels::Storage> storage;
    Matrix all;
  };
  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
  Buffer q_, k_, v_, out_;
  kernels::RopeTable rope_;
  kernels::TapSpec spec_ = {.last_rows = 2, .column_sums = true};
  std::vector<std::unique_ptr<Cache>> caches_;
  std::vector<Position> positions_;
  std::vector<int> done_order_;      // sequences, in the order in which their layer was done
  std::vector<kernels::Taps> taps_;  // [sequence]
};

TEST_F(LayerPassTest, RowBlocksDoNotMatter) {
  const std::vector<int64_t> n_rows = {5, 1, 4, 1, 1};
  const Floats at_once = Run(n_rows, kRows);
  const std::vector<kernels::Taps> taps = taps_;
  for (const int64_t row_block : {1, 2, 5, 7, 11}) {
    EXPECT_EQ(Run(n_rows, row_block), at_once) << row_block;
    for (size_t i = 0; i < n_rows.size(); ++i) {
      EXPECT_EQ(taps_[i].last_rows, taps[i].last_rows);
      EXPECT_EQ(caches_[i]->n_slots(0, 0), n_rows[i]);
      const std::vector<double>& sums = taps_[i].column_sums[0];
      EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), static_cast<double>(n_rows[i]),
                  1e-6);
    }
  }
}

// A row sees the entries of its own sequence only.
TEST_F(LayerPassTest, SequencesDoNotSeeEachOther) {
  const Floats together = Run({2, 3, 7}, kRows);
  const Floats alone = Run({2}, kRows);
  const auto n = static_cast<ptrdiff_t>(2 * kQueryHeads * kDim);
  EXPECT_EQ(Floats(together.begin(), together.begin() + n),
            Floats(alone.begin(), alone.begin() + n));
}

// A piece of several rows is decided as soon as it is attended; single rows after all are attended.
TEST_F(LayerPassTest, EverySequenceIsToldOnce) {
  Run({1, 4, 1, 3, 1}, kRows);
  EXPECT_EQ(done_order_, (std::vector<int>{1, 3, 0, 2, 4}));
  Run({1, 4, 1, 3, 1}, 4);
  EXPECT_EQ(done_order_, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_F(LayerPassTest, SingleRowsAreAttendedTogether) {
  std::vector<size_t> calls;
  const auto count = [&](std::span<const kernels::Attention> attentions) {
    calls.push_back(attentions.size());
    backend_->AttendAll(attentions);
  };
  Run({1, 1, 1, 1}, kRows, count);
  EXPECT_EQ(calls, (std::vector<size_t>{4}));
  calls.clear();
  Run({1, 5, 1, 1}, kRows, count);
  EXPECT_EQ(calls, (std::vector<size_t>{1, 3}));
}

// Rows whose output is not read are attended only as far as the taps need them.
TEST_F(LayerPassTest, AttendsWhatIsRead) {
  std::vector<int64_t> n_queries;
  LayerPass pass(*backend_, {.n_heads = kQueryHeads, .key_dim = kDim, .scale = 0.5},
                 [&](std::span<const kernels::Attention> attentions) {
                   for (const auto& attention : attentions) n_queries.push_back(attention.q.rows);
                   backend_->AttendAll(attentions);
                 });
  positions_.resize(kRows);
  std::iota(positions_.begin(), positions_.end(), 0);
  const auto attended = [&](const kernels::TapSpec& spec, int64_t first_output) {
    n_queries.clear();
    const auto cache = NewCache();
    const Sequence sequence = {.cache = cache.get(), .taps = spec};
    const LayerPass::Span span = {&sequence, kRows, first_output};
    pass.Start(0, rope_, {&span, 1});
    EXPECT_TRUE(pass.Run(Block(0, kRows)).has_value());
    return n_queries;
  };
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(attended({}, kRows), Counts{});
  EXPECT_EQ(attended({}, kRows - 1), Counts{1});
  EXPECT_EQ(attended({.last_rows = 3}, kRows), Counts{3});
  EXPECT_EQ(attended({.last_rows = 3}, kRows - 3), Counts{3});
  EXPECT_EQ(attended({.last_rows = 3}, kRows - 1), (Counts{3, 1}));
  EXPECT_EQ(attended({.last_rows = 3}, 0), Counts{12});
}

TEST_F(LayerPassTest, AnErrorOfAHookIsGivenBack) {
  LayerPass pass(*backend_, {.n_heads = kQueryHeads, .key_dim = kDim, .scale = 0.5});
  positions_ = {0, 1, 2};
  const auto cache = NewCache();
  const Sequence sequence = {
      .cache = cache.get(),
      .after_layer = [](const LayerDone&) -> Result<void> { return Error{"no plan"}; }};
  const LayerPass::Span span = {.sequence = &sequence, .n_rows = 3};
  pass.Start(0, rope_, {&span, 1});
  const auto done = pass.Run(Block(0, 3));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().message, "no plan");
}

}  // namespace
}  // namespace winnow::attention

// Attention and its taps, on every instruction set this machine has, against the reference backend.

#include "kernels/testing/attention.h"

namespace winnow::kernels {
namespace {

using namespace testing_support;  // NOLINT(google-build-using-namespace): a test's own vocabulary

class AttentionConformance : public AttentionConformanceBase {
 protected:
  AttentionConformance() : AttentionConformanceBase({1, 2, 3, 5}) {}
};

TEST_P(AttentionConformance, OneQueryEveryCacheType) {
  for (const TensorType key_type : kCacheTypes) {
    for (const TensorType value_type : kCacheTypes) {
      Check({.n_slots = 777,
             .kv_heads = 2,
             .group = 3,
             .key_type = key_type,
             .value_type = value_type});
    }
  }
}

TEST_P(AttentionConformance, OneQueryEveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16}) {
    for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0}) {
      Check({.n_slots = 300, .kv_heads = 2, .group = group, .key_type = type, .value_type = type});
    }
  }
}

TEST_P(AttentionConformance, OneQueryEveryDimension) {
  for (const int dim : {1, 8, 20, 32, 64, 80, 96, 100, 128, 256}) {
    for (const TensorType type : kCacheTypes) {
      if (IsBlockType(type) && dim % 32 != 0) continue;
      Check({.n_slots = 70,
             .kv_heads = 1,
             .group = 4,
             .key_dim = dim,
             .value_dim = dim,
             .key_type = type,
             .value_type = type});
    }
  }
  Check({.n_slots = 70, .group = 2, .key_dim = 96, .value_dim = 64});
}

TEST_P(AttentionConformance, OneQueryAroundTilesAndChunks) {
  for (const int64_t n_slots : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 511, 513}) {
    for (const TensorType type : {TensorType::kBF16, TensorType::kQ4_0}) {
      Check({.n_slots = n_slots, .kv_heads = 2, .group = 3, .key_type = type, .value_type = type});
    }
  }
}

TEST_P(AttentionConformance, FewQueries) {
  for (const int64_t n_queries : {2, 3, 4, 5, 12}) {
    for (const int64_t more : {0, 1, 254, 255, 256, 600}) {
      Check({.n_queries = n_queries,
             .n_slots = n_queries + more,
             .kv_heads = 2,
             .group = 3,
             .key_type = TensorType::kF16,
             .value_type = TensorType::kQ8_0});
    }
  }
}

TEST_P(AttentionConformance, ManyQueriesEveryCacheType) {
  for (const TensorType key_type : kCacheTypes) {
    for (const TensorType value_type : kCacheTypes) {
      Check({.n_queries = 37,
             .n_slots = 145,
             .kv_heads = 2,
             .group = 3,
             .key_type = key_type,
             .value_type = value_type});
    }
  }
}

TEST_P(AttentionConformance, ManyQueriesEveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    Check({.n_queries = 29,
           .n_slots = 60,
           .kv_heads = 2,
           .group = group,
           .key_type = TensorType::kF16,
           .value_type = TensorType::kF16});
  }
}

TEST_P(AttentionConformance, ManyQueriesEveryDimension) {
  for (const int dim : {1, 8, 20, 32, 64, 80, 96, 100, 128, 256}) {
    for (const TensorType type : kCacheTypes) {
      if (IsBlockType(type) && dim % 32 != 0) continue;
      Check({.n_queries = 30,
             .n_slots = 70,
             .kv_heads = 1,
             .group = 2,
             .key_dim = dim,
             .value_dim = dim,
             .key_type = type,
             .value_type = type});
    }
  }
  Check({.n_queries = 30, .n_slots = 70, .group = 2, .key_dim = 96, .value_dim = 64});
}

TEST_P(AttentionConformance, ManyQueriesAroundBlocksAndTiles) {
  for (const int64_t n_queries : {13, 16, 20, 21, 22, 43, 63, 64, 65, 100, 130}) {
    for (const int64_t more : {0, 1, 5, 47, 48, 49, 97, 1030}) {
      Check({.n_queries = n_queries,
             .n_slots = n_queries + more,
             .kv_heads = 1,
             .group = 3,
             .key_dim = 32,
             .value_dim = 32});
    }
  }
}

// With few blocks of rows and many slots, the slots are split among threads, and some parts lie
// beyond what some rows see.
TEST_P(AttentionConformance, ManyQueriesOverSplitSlots) {
  for (const int64_t n_slots : {2047, 2048, 3100}) {
    Check({.n_queries = 30,
           .n_slots = n_slots,
           .kv_heads = 2,
           .group = 2,
           .key_dim = 32,
           .value_dim = 32},
          {.last_rows = 4, .column_sums = true});
  }
  Check({.n_queries = 1100,
         .n_slots = 2100,
         .kv_heads = 1,
         .group = 1,
         .key_dim = 8,
         .value_dim = 8});
}

TEST_P(AttentionConformance, TapsOfOneQuery) {
  using Reduce = TapSpec::Reduce;
  for (const Reduce reduce : {Reduce::kMean, Reduce::kMax, Reduce::kSum}) {
    for (const int64_t n_slots : {1, 17, 256, 600}) {
      for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0}) {
        const Shape shape = {
            .n_slots = n_slots, .kv_heads = 2, .group = 3, .key_type = type, .value_type = type};
        Check(shape, {.last_rows = 1, .reduce = reduce});
        Check(shape, {.last_rows = 5, .column_sums = true, .reduce = reduce});
      }
    }
  }
  Check({.n_queries = 3, .n_slots = 300, .kv_heads = 2, .group = 3},
        {.last_rows = 2, .column_sums = true});
}

// last_sums alone and with other taps; over fewer queries than the call has, and over more.
TEST_P(AttentionConformance, SumsOverTheLastQueries) {
  using Reduce = TapSpec::Reduce;
  for (const int64_t n_queries : {1, 3, 40, 70}) {
    const Shape shape = {.n_queries = n_queries, .n_slots = 300, .kv_heads = 2, .group = 3};
    for (const Reduce reduce : {Reduce::kMean, Reduce::kMax, Reduce::kNone}) {
      Check(shape, {.last_sums = 2, .reduce = reduce});
      Check(shape, {.last_rows = 1, .last_sums = 35, .reduce = reduce});
      Check(shape, {.last_sums = 35, .column_sums = true, .reduce = reduce});
    }
    Check(shape, {.last_rows = 3, .last_sums = 1000, .column_sums = true, .square_sums = true});
  }
}

TEST_P(AttentionConformance, TapsOfManyQueries) {
  using Reduce = TapSpec::Reduce;
  constexpr Reduce kReduces[] = {Reduce::kMean, Reduce::kMax, Reduce::kSum};
  size_t turn = 0;  // cycles through the reductions, which do not depend on the blocks of slots
  for (const int64_t n_queries : {13, 40, 65}) {
    for (const int64_t more : {0, 150, 300}) {
      const Shape shape = {.n_queries = n_queries,
                           .n_slots = n_queries + more,
                           .kv_heads = 2,
                           .group = 3,
                           .key_type = TensorType::kF16,
                           .value_type = TensorType::kF16};
      Check(shape, {.last_rows = 7, .reduce = kReduces[turn % 3]});
      Check(shape, {.column_sums = true, .reduce = kReduces[(turn + 1) % 3]});
      Check(shape, {.last_rows = 100, .column_sums = true, .reduce = kReduces[(turn + 2) % 3]});
      ++turn;
    }
  }
  for (const int group : {1, 2, 4, 5, 7, 8}) {
    Check({.n_queries = 20, .n_slots = 200, .group = group, .key_type = TensorType::kQ8_0},
          {.last_rows = 3, .column_sums = true});
  }
}

// Threads finish blocks of rows in any order, and the weights differ so much that the order of
// additions shows. Also numbers of lists that exceed those summed together.
TEST_P(AttentionConformance, ColumnSumsOfManyBlocks) {
  using Reduce = TapSpec::Reduce;
  for (const Reduce reduce : {Reduce::kMean, Reduce::kSum, Reduce::kNone}) {
    for (const int group : {1, 5}) {
      Check({.n_queries = 700,
             .n_slots = 770,
             .kv_heads = 2,
             .group = group,
             .key_dim = 16,
             .value_dim = 16,
             .spread = 8},
            {.last_rows = 3, .column_sums = true, .reduce = reduce});
    }
  }
  // Many KV heads; as many lists as can be summed from kept weights, and one more.
  Check({.n_queries = 70, .n_slots = 90, .kv_heads = 11, .group = 2, .key_dim = 8, .value_dim = 8},
        {.column_sums = true});
  for (const int group : {16, 17}) {
    Check({.n_queries = 40, .n_slots = 90, .group = group, .key_dim = 8, .value_dim = 8},
          {.column_sums = true, .reduce = Reduce::kNone});
  }
}

// Scores of several hundred: the softmax must subtract the maximum before it exponentiates.
TEST_P(AttentionConformance, LargeScores) {
  ThreadPool pool(1);
  for (const int64_t n_queries : {1, 40}) {
    const auto run = [&](Backend& b) {
      std::vector<float> q(static_cast<size_t>(n_queries * 16), 30.0f);
      std::vector<float> keys, values;
      for (int64_t slot = 0; slot < 300; ++slot) {
        for (int i = 0; i < 16; ++i) {
          keys.push_back(slot < 200 ? -1.0f : 1.0f + 0.001f * static_cast<float>(slot));
          values.push_back(static_cast<float>(slot));
        }
      }
      const std::unique_ptr<Storage> k = std::move(b.Allocate(300 * 64)).value();
      const std::unique_ptr<Storage> v = std::move(b.Allocate(300 * 64)).value();
      const HeadStore store = {k.get(), v.get(), 0, 0, 300};
      const int64_t first[1] = {0};
      const Owned key_rows = Make(b, 300, 16, keys), value_rows = Make(b, 300, 16, values);
      b.StoreRows(key_rows.matrix, {{&store, 1}, first, TensorType::kF32, true});
      b.StoreRows(value_rows.matrix, {{&store, 1}, first, TensorType::kF32, false});
      const Owned queries = Make(b, n_queries, 16, q), out = Make(b, n_queries, 16, q);
      b.Attend({.q = queries.matrix,
                .out = out.matrix,
                .n_q_heads = 1,
                .key_dim = 16,
                .value_dim = 16,
                .key_type = TensorType::kF32,
                .value_type = TensorType::kF32,
                .scale = 1,
                .heads = {&store, 1},
                .taps = {}});
      return Contents(b, out.matrix);
    };
    Compare(run, 1e-4, "large scores");
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionConformance, testing::ValuesIn(TestedTargets()),
                         NameOfTarget);

}  // namespace
}  // namespace winnow::kernels

// Attention and its taps, on every instruction set this machine has, against the reference backend.

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/testing/conformance.h"

namespace winnow::kernels {
namespace {

using namespace testing_support;  // NOLINT(google-build-using-namespace): a test's own vocabulary

// Relative to the largest magnitude of the expected values. Scores of a few units are sums of up to
// 256 products of floats, and their rounding passes through the exponential.
constexpr double kAttentionTolerance = 1e-5;
// Keys of Q8_0 and Q4_0 meet queries rounded to 8 bits per block of 32.
constexpr double kRoundedQueryTolerance = 1.5e-2;

struct Shape {
  int64_t n_queries = 1;
  int64_t n_slots = 1;
  int kv_heads = 1;
  int group = 1;
  int key_dim = 64;
  int value_dim = 64;
  TensorType key_type = TensorType::kF32;
  TensorType value_type = TensorType::kF32;

  std::string Text() const {
    return std::to_string(n_queries) + " queries, " + std::to_string(n_slots) + " slots, " +
           std::to_string(kv_heads) + " x " + std::to_string(group) + " heads, dims " +
           std::to_string(key_dim) + ", " + std::to_string(value_dim) + ", " +
           std::string(gguf::InfoOf(key_type).name) + ", " +
           std::string(gguf::InfoOf(value_type).name);
  }
};

struct Answer {
  std::vector<float> out;
  Taps taps;
};

// Heads have different numbers of slots, as after an eviction: head h has n_slots + 5 h.
Answer RunAttention(Backend& b, const Shape& s, const TapSpec& taps) {
  Random random(s.n_slots * 1000 + s.n_queries);
  const int n_q_heads = s.kv_heads * s.group;
  const Owned q = Make(b, s.n_queries, n_q_heads * s.key_dim,
                       random.Normal(s.n_queries * n_q_heads * s.key_dim, 1.5f));
  const Owned out =
      Make(b, s.n_queries, n_q_heads * s.value_dim,
           std::vector<float>(static_cast<size_t>(s.n_queries * n_q_heads * s.value_dim),
                              std::numeric_limits<float>::quiet_NaN()));
  std::vector<std::unique_ptr<Storage>> memory;
  std::vector<HeadStore> heads;
  for (int head = 0; head < s.kv_heads; ++head) {
    const int64_t n = s.n_slots + 5 * head;
    // Exactly as large as the rows, so that the address sanitizer sees reads behind the last one.
    memory.push_back(std::move(b.Allocate(n * gguf::RowBytes(s.key_type, s.key_dim))).value());
    memory.push_back(std::move(b.Allocate(n * gguf::RowBytes(s.value_type, s.value_dim))).value());
    const HeadStore store = {memory[memory.size() - 2].get(), memory.back().get(), 0, 0, n};
    const int64_t first[1] = {0};
    const Owned keys = Make(b, n, s.key_dim, random.Normal(n * s.key_dim));
    const Owned values = Make(b, n, s.value_dim, random.Normal(n * s.value_dim));
    b.StoreRows(keys.matrix, {{&store, 1}, first, s.key_type, true});
    b.StoreRows(values.matrix, {{&store, 1}, first, s.value_type, false});
    heads.push_back(store);
  }
  Answer answer;
  b.Attend({.q = q.matrix,
            .out = out.matrix,
            .n_q_heads = n_q_heads,
            .key_dim = s.key_dim,
            .value_dim = s.value_dim,
            .key_type = s.key_type,
            .value_type = s.value_type,
            .scale = 1 / std::sqrt(static_cast<float>(s.key_dim)),
            .heads = heads,
            .taps = taps,
            .found = &answer.taps});
  answer.out = Contents(b, out.matrix);
  ExpectPaddingIntact(b, out);
  return answer;
}

class AttentionConformance : public Conformance {
 protected:
  AttentionConformance() {
    for (const int n_threads : {1, 2, 3, 5}) {
      pools_.push_back(std::make_unique<ThreadPool>(n_threads));
    }
  }

  void Check(const Shape& shape, const TapSpec& taps = {}) {
    const std::unique_ptr<Backend> reference = MakeReferenceBackend();
    const Answer expected = RunAttention(*reference, shape, taps);
    const bool rounded = IsBlockType(shape.key_type);
    const double tolerance = rounded ? kRoundedQueryTolerance : kAttentionTolerance;
    const Answer found = RunAttention(*Cpu(*pools_[0]), shape, taps);
    ExpectClose(found.out, expected.out, tolerance, shape.Text());
    ASSERT_EQ(found.taps.n_last_rows, expected.taps.n_last_rows) << shape.Text();
    ASSERT_EQ(found.taps.last_rows.size(), expected.taps.last_rows.size()) << shape.Text();
    ASSERT_EQ(found.taps.column_sums.size(), expected.taps.column_sums.size()) << shape.Text();
    for (size_t head = 0; head < expected.taps.last_rows.size(); ++head) {
      ExpectClose(found.taps.last_rows[head], expected.taps.last_rows[head], 2 * tolerance,
                  "last rows, " + shape.Text());
    }
    for (size_t head = 0; head < expected.taps.column_sums.size(); ++head) {
      ExpectClose(found.taps.column_sums[head], expected.taps.column_sums[head], 2 * tolerance,
                  "column sums, " + shape.Text());
    }
    for (size_t i = 1; i < pools_.size(); ++i) {
      const Answer again = RunAttention(*Cpu(*pools_[i]), shape, taps);
      const std::string what =
          shape.Text() + " with " + std::to_string(pools_[i]->n_threads()) + " threads";
      EXPECT_EQ(again.out, found.out) << what;
      EXPECT_EQ(again.taps.last_rows, found.taps.last_rows) << what;
      EXPECT_EQ(again.taps.column_sums, found.taps.column_sums) << what;
    }
  }

  std::vector<std::unique_ptr<ThreadPool>> pools_;
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

// So few blocks of rows, and so many slots, that the slots are split and some parts lie beyond what
// some rows see.
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

TEST_P(AttentionConformance, TapsOfManyQueries) {
  using Reduce = TapSpec::Reduce;
  for (const Reduce reduce : {Reduce::kMean, Reduce::kMax, Reduce::kSum}) {
    for (const int64_t n_queries : {13, 40, 65}) {
      for (const int64_t more : {0, 150, 300}) {
        const Shape shape = {.n_queries = n_queries,
                             .n_slots = n_queries + more,
                             .kv_heads = 2,
                             .group = 3,
                             .key_type = TensorType::kF16,
                             .value_type = TensorType::kF16};
        Check(shape, {.last_rows = 7, .reduce = reduce});
        Check(shape, {.column_sums = true, .reduce = reduce});
        Check(shape, {.last_rows = 100, .column_sums = true, .reduce = reduce});
      }
    }
  }
  for (const int group : {1, 2, 4, 5, 7, 8}) {
    Check({.n_queries = 20, .n_slots = 200, .group = group, .key_type = TensorType::kQ8_0},
          {.last_rows = 3, .column_sums = true});
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

INSTANTIATE_TEST_SUITE_P(Targets, AttentionConformance, testing::ValuesIn(CpuTargets()),
                         NameOfTarget);

}  // namespace
}  // namespace winnow::kernels

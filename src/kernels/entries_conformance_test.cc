// Attention over entries that differ from rows: rotated inside attention, sharing rows, selected by
// top-p. On every instruction set this machine has, against the reference backend.

#include "kernels/backends.h"
#include "kernels/testing/attention.h"

namespace winnow::kernels {
namespace {

using namespace testing_support;  // NOLINT(google-build-using-namespace): a test's own vocabulary

class EntriesConformance : public AttentionConformanceBase {
 protected:
  EntriesConformance() : AttentionConformanceBase({1, 3}) {}

  // Both implementations: one pass over the rows for few queries, and blocks of queries for many.
  void CheckFewAndMany(Shape shape, const TapSpec& taps = {}) {
    shape.n_queries = 1;
    Check(shape, taps);
    shape.n_queries = 26;
    Check(shape, taps);
  }
};

TEST_P(EntriesConformance, RotationEveryCacheType) {
  for (const TensorType type : kCacheTypes) {
    for (const Rotate rotate : {Rotate::kHalves, Rotate::kInterleaved}) {
      CheckFewAndMany({.n_slots = 333,
                       .kv_heads = 2,
                       .group = 3,
                       .key_type = type,
                       .value_type = type,
                       .rotate = rotate});
    }
  }
}

TEST_P(EntriesConformance, RotationEveryDimension) {
  for (const int dim : {64, 80, 96, 100, 128}) {
    for (const int n_rotated : {0, dim / 2, 20}) {
      for (const Rotate rotate : {Rotate::kHalves, Rotate::kInterleaved}) {
        CheckFewAndMany({.n_slots = 70,
                         .group = 4,
                         .key_dim = dim,
                         .value_dim = dim,
                         .key_type = TensorType::kF16,
                         .value_type = TensorType::kF16,
                         .rotate = rotate,
                         .n_rotated = n_rotated});
      }
    }
  }
}

// Scaled rotations, as models with extended contexts (YaRN) have them: the product of two rotations
// is not the rotation by the sum of their angles.
TEST_P(EntriesConformance, RotationOfAMagnitude) {
  for (const Rotate rotate : {Rotate::kHalves, Rotate::kInterleaved}) {
    CheckFewAndMany(
        {.n_slots = 150, .kv_heads = 2, .group = 3, .rotate = rotate, .magnitude = 1.2});
  }
}

TEST_P(EntriesConformance, RotationEveryGroup) {
  for (const int group : {1, 3, 4, 8}) {
    CheckFewAndMany({.n_slots = 300,
                     .kv_heads = 2,
                     .group = group,
                     .key_type = TensorType::kBF16,
                     .value_type = TensorType::kBF16,
                     .rotate = Rotate::kHalves});
  }
}

TEST_P(EntriesConformance, RotationAroundTilesAndChunks) {
  for (const int64_t n_queries : {1, 2, 4, 64}) {
    for (const int64_t more : {0, 1, 16, 255, 256, 600}) {
      Check({.n_queries = n_queries,
             .n_slots = n_queries + more,
             .kv_heads = 2,
             .group = 3,
             .key_dim = 32,
             .value_dim = 32,
             .rotate = Rotate::kHalves});
    }
  }
}

TEST_P(EntriesConformance, SharedRowsEveryCacheType) {
  for (const TensorType type : kCacheTypes) {
    for (const Rotate rotate : {Rotate::kNot, Rotate::kHalves}) {
      CheckFewAndMany({.n_slots = 150,
                       .kv_heads = 2,
                       .group = 3,
                       .key_type = type,
                       .value_type = type,
                       .rotate = rotate,
                       .shared = 3.7,
                       .factors = true});
    }
  }
}

TEST_P(EntriesConformance, SharedRowsEveryGroupAndDimension) {
  for (const int group : {1, 3, 4, 8}) {
    for (const int dim : {64, 80, 96, 128}) {
      CheckFewAndMany({.n_slots = 40,
                       .kv_heads = 2,
                       .group = group,
                       .key_dim = dim,
                       .value_dim = dim,
                       .key_type = TensorType::kF16,
                       .value_type = TensorType::kF16,
                       .shared = 2,
                       .factors = true});
    }
  }
}

TEST_P(EntriesConformance, SharedRowsAroundTilesAndChunks) {
  for (const int64_t n_slots : {1, 15, 16, 17, 255, 256, 257, 600}) {
    for (const double shared : {1.0, 1.3, 4.0}) {
      Check({.n_slots = n_slots, .kv_heads = 2, .group = 3, .shared = shared, .factors = true});
    }
  }
  Check({.n_queries = 3, .n_slots = 100, .kv_heads = 2, .group = 3, .shared = 2, .factors = true});
}

TEST_P(EntriesConformance, FactorsAlone) {
  for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0}) {
    CheckFewAndMany({.n_slots = 300,
                     .kv_heads = 2,
                     .group = 3,
                     .key_type = type,
                     .value_type = type,
                     .factors = true});
  }
}

TEST_P(EntriesConformance, TapsAreOfEntries) {
  using Reduce = TapSpec::Reduce;
  for (const Reduce reduce : {Reduce::kMean, Reduce::kMax, Reduce::kSum, Reduce::kNone}) {
    const TapSpec all = {
        .last_rows = 5, .column_sums = true, .square_sums = true, .reduce = reduce};
    for (const Rotate rotate : {Rotate::kNot, Rotate::kInterleaved}) {
      CheckFewAndMany({.n_slots = 290, .kv_heads = 2, .group = 3, .rotate = rotate}, all);
      CheckFewAndMany({.n_slots = 190,
                       .kv_heads = 2,
                       .group = 3,
                       .rotate = rotate,
                       .shared = 2,
                       .factors = true},
                      all);
    }
    const TapSpec sums = {.column_sums = true, .reduce = reduce};
    for (const Rotate rotate : {Rotate::kNot, Rotate::kHalves}) {
      Check({.n_queries = 90, .n_slots = 130, .kv_heads = 2, .group = 3, .rotate = rotate}, sums);
      Check({.n_queries = 90,
             .n_slots = 95,
             .kv_heads = 2,
             .group = 3,
             .rotate = rotate,
             .shared = 2,
             .factors = true},
            sums);
    }
  }
}

TEST_P(EntriesConformance, TapsUnreducedAndSquared) {
  using Reduce = TapSpec::Reduce;
  for (const int64_t n_queries : {1, 3, 40}) {
    for (const int group : {1, 3, 8}) {
      const Shape shape = {
          .n_queries = n_queries, .n_slots = 600, .kv_heads = 2, .group = group, .key_dim = 32};
      for (const Reduce reduce : {Reduce::kMean, Reduce::kMax, Reduce::kNone}) {
        Check(shape, {.square_sums = true, .reduce = reduce});
      }
      Check(shape, {.last_rows = 2, .reduce = Reduce::kNone});
      Check(shape, {.column_sums = true, .reduce = Reduce::kNone});
    }
  }
  // So many queries that the float lane sums are flushed during the call.
  Check({.n_queries = 1200, .n_slots = 1300, .group = 2, .key_dim = 8, .value_dim = 8},
        {.column_sums = true, .square_sums = true});
}

// Every path: one query, few and many, with several taps.
TEST_P(EntriesConformance, Biases) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                TensorType::kQ8_0, TensorType::kQ4_0}) {
    for (const int64_t n_queries : {1, 3, 40}) {
      const Shape shape = {.n_queries = n_queries,
                           .n_slots = 300,
                           .kv_heads = 2,
                           .group = 3,
                           .key_type = type,
                           .value_type = type,
                           .biases = true};
      Check(shape);
      Check(shape, {.last_rows = 2, .column_sums = true, .column_max = true});
    }
  }
  Check({.n_slots = 290, .kv_heads = 2, .group = 3, .rotate = Rotate::kHalves, .biases = true});
  Check({.n_slots = 290, .kv_heads = 2, .group = 3, .biases = true, .top_p = 0.5f});
}

TEST_P(EntriesConformance, LargestWeightsOfColumns) {
  using Reduce = TapSpec::Reduce;
  for (const int64_t n_queries : {1, 3, 40, 130}) {
    const Shape shape = {.n_queries = n_queries, .n_slots = 600, .kv_heads = 2, .group = 3};
    for (const Reduce reduce : {Reduce::kMean, Reduce::kMax, Reduce::kNone}) {
      Check(shape, {.column_max = true, .reduce = reduce});
      Check(shape, {.last_rows = 3, .column_sums = true, .column_max = true, .reduce = reduce});
    }
  }
  // Groups of one query head, in so many blocks that the first pass finds the maxima.
  Check({.n_queries = 700, .n_slots = 770, .kv_heads = 8, .group = 1, .key_dim = 16},
        {.last_rows = 3, .column_max = true});
  Check({.n_slots = 40, .kv_heads = 2, .group = 3, .shared = 2, .factors = true},
        {.column_max = true});
}

TEST_P(EntriesConformance, TopP) {
  for (const float top_p : {0.001f, 0.3f, 0.85f, 0.999f}) {
    for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
      for (const Rotate rotate : {Rotate::kNot, Rotate::kHalves}) {
        Check({.n_slots = 600,
               .kv_heads = 2,
               .group = 3,
               .key_type = type,
               .value_type = type,
               .rotate = rotate,
               .top_p = top_p});
        Check({.n_slots = 300,
               .kv_heads = 2,
               .group = 3,
               .key_type = type,
               .value_type = type,
               .rotate = rotate,
               .shared = 2,
               .top_p = top_p});
      }
    }
  }
  for (const int group : {1, 4, 8}) {
    Check({.n_slots = 17, .group = group, .top_p = 0.9f});
    Check({.n_slots = 1, .group = group, .top_p = 0.9f});
  }
  // Values of every type when some rows are skipped.
  for (const TensorType type : kCacheTypes) {
    Check({.n_slots = 400, .kv_heads = 2, .group = 2, .value_type = type, .top_p = 0.5f});
  }
}

// --- the same results from plain attention ---

// One query head over rows of 4 dimensions, given as floats.
struct Small {
  std::vector<float> q, keys, values;  // [4], [row, 4], [row, 4]
  const RopeTable* rope = nullptr;
  HeadEntries entries = {};
  float top_p = 1;
  int64_t n_attended = 0;
};

std::vector<float> Attend(Backend& b, Small& s) {
  const auto n = static_cast<int64_t>(s.keys.size()) / 4;
  const std::unique_ptr<Storage> keys = std::move(b.Allocate(n * 16)).value();
  const std::unique_ptr<Storage> values = std::move(b.Allocate(n * 16)).value();
  b.Write({keys.get(), 0, n, 4, 4}, s.keys);
  b.Write({values.get(), 0, n, 4, 4}, s.values);
  const HeadStore store = {keys.get(), values.get(), 0, 0, n};
  const Owned q = Make(b, 1, 4, s.q), out = Make(b, 1, 4, s.q);
  b.Attend({.q = q.matrix,
            .out = out.matrix,
            .n_q_heads = 1,
            .key_dim = 4,
            .value_dim = 4,
            .key_type = TensorType::kF32,
            .value_type = TensorType::kF32,
            .scale = 1,
            .heads = {&store, 1},
            .rope = s.rope,
            .entries = {&s.entries, 1},
            .top_p = s.top_p,
            .n_attended = &s.n_attended});
  return Contents(b, out.matrix);
}

TEST_P(EntriesConformance, RotationInsideIsRopeBefore) {
  for (const bool interleaved : {false, true}) {
    const auto run = [&](Backend& b) {
      const Owned table = Make(b, kTablePositions, 4, MakeAngles(4));
      const RopeTable rope = {table.matrix, 4, interleaved};
      const std::vector<int32_t> positions = {5, 0, 311}, query_position = {7};
      Small inside = {.q = {1, -2, 0.5f, 3},
                      .keys = {1, 2, 3, 4, -1, 0, 2, 1, 0.5f, 0.5f, -3, 1},
                      .values = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0},
                      .rope = &rope,
                      .entries = {.positions = positions, .query_position = query_position[0]}};
      Small before = inside;
      const Owned keys = Make(b, 3, 4, before.keys), q = Make(b, 1, 4, before.q);
      b.Rope(keys.matrix, 4, positions, rope);
      b.Rope(q.matrix, 4, query_position, rope);
      before.keys = Contents(b, keys.matrix);
      before.q = Contents(b, q.matrix);
      before.rope = nullptr;
      before.entries = {};
      const std::vector<float> found = Attend(b, inside);
      ExpectClose(found, Attend(b, before), kAttentionTolerance, "rotation inside");
      return found;
    };
    Compare(run, kAttentionTolerance, "rotation inside");
  }
}

TEST_P(EntriesConformance, SharedRowsAreCopiesTimesFactors) {
  const auto run = [&](Backend& b) {
    const std::vector<int32_t> rows = {1, 0, 1, 1};
    const std::vector<Half> factors = {2, 1, -1, 0.5f};
    Small shared = {.q = {1, -2, 0.5f, 1},
                    .keys = {1, 2, 3, 4, -1, 0, 2, 1},
                    .values = {1, 2, 3, 4, 5, 6, 7, 8},
                    .entries = {.rows = rows, .factors = factors}};
    Small copies = {.q = shared.q,
                    .keys = {-2, 0, 4, 2, 1, 2, 3, 4, 1, 0, -2, -1, -0.5f, 0, 1, 0.5f},
                    .values = {5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8}};
    const std::vector<float> found = Attend(b, shared);
    ExpectClose(found, Attend(b, copies), kAttentionTolerance, "shared rows");
    return found;
  };
  Compare(run, kAttentionTolerance, "shared rows");
}

TEST_P(EntriesConformance, TopPKeepsTheFewestThatReachTheSum) {
  // Weights 1/2, 1/4, 1/8, 1/8 of the four entries.
  const float log2 = std::log(2.0f);
  const auto kept = [&](float top_p) {
    return [&, top_p](Backend& b) {
      Small s = {.q = {log2, 0, 0, 0},
                 .keys = {2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0},
                 .values = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
                 .top_p = top_p};
      std::vector<float> found = Attend(b, s);
      found.push_back(static_cast<float>(s.n_attended));
      return found;
    };
  };
  const auto expect = [&](float top_p, const std::vector<float>& expected) {
    const auto run = kept(top_p);
    ThreadPool pool(2);
    ExpectClose(run(*MakeReferenceBackend()), expected, 1e-6, "reference");
    ExpectClose(run(*Cpu(pool)), expected, 1e-6, "cpu");
  };
  expect(0.4f, {0, 1, 0, 0, 1});
  expect(0.6f, {1 / 3.0f, 2 / 3.0f, 0, 0, 2});
  // Of two equal weights, the later entry is kept.
  expect(0.8f, {2 / 7.0f, 4 / 7.0f, 0, 1 / 7.0f, 3});
}

INSTANTIATE_TEST_SUITE_P(Targets, EntriesConformance, testing::ValuesIn(TestedTargets()),
                         NameOfTarget);

}  // namespace
}  // namespace winnow::kernels

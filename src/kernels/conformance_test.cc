// Every op except MatMul, on every instruction set this machine has, against the reference backend.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace winnow::kernels {
namespace {

// Relative to the largest magnitude of the expected values. Float sums of some hundred terms,
// exponentials good to 1e-7, and up to a thousand units of rounding where scores are large.
constexpr double kFloatTolerance = 2e-6;
constexpr double kAttentionTolerance = 1e-5;
// Keys of Q8_0 and Q4_0 meet queries rounded to 8 bits per block of 32.
constexpr double kRoundedQueryTolerance = 1.5e-2;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  std::vector<float> Normal(int64_t n, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = distribution(engine_);
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// A matrix with a row stride larger than its columns, so that code which confuses the two fails.
struct Owned {
  std::unique_ptr<Storage> storage;
  Matrix matrix;
};

constexpr int64_t kStridePadding = 3;
constexpr float kPaddingValue = 12345.0f;

Owned Make(Backend& backend, int64_t rows, int64_t cols, std::span<const float> values) {
  const int64_t stride = cols + kStridePadding;
  Owned owned;
  owned.storage = std::move(backend.Allocate((rows * stride + 1) * 4)).value();
  const Matrix whole = {owned.storage.get(), 1, rows, stride, stride};
  backend.Write(whole, std::vector<float>(static_cast<size_t>(rows * stride), kPaddingValue));
  owned.matrix = whole.Cols(0, cols);
  backend.Write(owned.matrix, values);
  return owned;
}

std::vector<float> Contents(Backend& backend, const Matrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.cols));
  backend.Read(matrix, values);
  return values;
}

// Nothing may be written between the rows.
void ExpectPaddingIntact(Backend& backend, const Owned& owned) {
  Matrix padding = owned.matrix;
  padding.offset += padding.cols;
  padding.cols = kStridePadding;
  padding.rows -= 1;  // the last row's padding lies behind the matrix
  for (const float value : Contents(backend, padding)) ASSERT_EQ(value, kPaddingValue);
}

template <typename T>
void ExpectClose(const std::vector<T>& found, const std::vector<T>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0;
  for (const T value : expected) largest = std::max(largest, std::fabs(double{value}));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_LE(std::fabs(double{found[i]} - double{expected[i]}), tolerance * largest + 1e-30)
        << what << ": element " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

class Conformance : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<Backend> Cpu(ThreadPool& pool) {
    return std::move(MakeCpuBackend({.pool = &pool, .target = GetParam()})).value();
  }

  // Runs `op` on the reference and on the CPU with 1 and 3 threads; it returns what it computed.
  template <typename Op>
  void Compare(const Op& op, double tolerance, const std::string& what) {
    const std::unique_ptr<Backend> reference = MakeReferenceBackend();
    const std::vector<float> expected = op(*reference);
    ThreadPool one(1), three(3);
    const std::vector<float> found = op(*Cpu(one));
    ExpectClose(found, expected, tolerance, what);
    EXPECT_EQ(op(*Cpu(three)), found) << what << ": depends on the number of threads";
  }
};

const int64_t kColumns[] = {1, 3, 8, 15, 16, 17, 64, 100, 256, 257, 576, 1000, 5000};

TEST_P(Conformance, Norms) {
  for (const int64_t cols : kColumns) {
    for (const int64_t rows : {1, 7}) {
      const std::string what = std::to_string(rows) + " x " + std::to_string(cols);
      Random random(cols);
      const std::vector<float> x = random.Normal(rows * cols, 3);
      const std::vector<float> weight = random.Normal(cols);
      const std::vector<float> bias = random.Normal(cols);
      Compare(
          [&](Backend& b) {
            const Owned in = Make(b, rows, cols, x), w = Make(b, 1, cols, weight);
            const Owned out = Make(b, rows, cols, x);
            b.RmsNorm(in.matrix, w.matrix, 1e-5f, out.matrix);
            ExpectPaddingIntact(b, out);
            b.RmsNorm(in.matrix, w.matrix, 1e-5f, in.matrix);
            EXPECT_EQ(Contents(b, in.matrix), Contents(b, out.matrix)) << "in place";
            return Contents(b, out.matrix);
          },
          kFloatTolerance, "RmsNorm " + what);
      for (const bool with_bias : {false, true}) {
        Compare(
            [&](Backend& b) {
              const Owned in = Make(b, rows, cols, x), w = Make(b, 1, cols, weight);
              const Owned add = Make(b, 1, cols, bias), out = Make(b, rows, cols, x);
              b.LayerNorm(in.matrix, w.matrix, with_bias ? add.matrix : Matrix{}, 1e-3f,
                          out.matrix);
              ExpectPaddingIntact(b, out);
              return Contents(b, out.matrix);
            },
            kFloatTolerance, "LayerNorm " + what);
      }
    }
  }
}

TEST_P(Conformance, NormsOfHeads) {
  for (const int64_t head_dim : {8, 20, 64, 100, 128}) {
    Random random(head_dim);
    const std::vector<float> x = random.Normal(5 * 6 * head_dim);
    const std::vector<float> weight = random.Normal(head_dim);
    Compare(
        [&](Backend& b) {
          const Owned in = Make(b, 5, 6 * head_dim, x), w = Make(b, 1, head_dim, weight);
          b.RmsNormHeads(in.matrix, w.matrix, 1e-6f);
          ExpectPaddingIntact(b, in);
          return Contents(b, in.matrix);
        },
        kFloatTolerance, "RmsNormHeads " + std::to_string(head_dim));
  }
}

TEST_P(Conformance, Add) {
  for (const int64_t cols : kColumns) {
    Random random(cols);
    const std::vector<float> x = random.Normal(3 * cols), y = random.Normal(3 * cols);
    Compare(
        [&](Backend& b) {
          const Owned to = Make(b, 3, cols, x), from = Make(b, 3, cols, y);
          b.Add(to.matrix, from.matrix);
          ExpectPaddingIntact(b, to);
          return Contents(b, to.matrix);
        },
        0, "Add " + std::to_string(cols));
  }
}

TEST_P(Conformance, Activate) {
  for (const Activation activation : {Activation::kSilu, Activation::kGelu}) {
    for (const int64_t cols : kColumns) {
      for (const bool with_up : {false, true}) {
        Random random(cols);
        const std::vector<float> gate = random.Normal(2 * cols, 4), up = random.Normal(2 * cols);
        Compare(
            [&](Backend& b) {
              const Owned g = Make(b, 2, cols, gate), u = Make(b, 2, cols, up);
              b.Activate(activation, g.matrix, with_up ? u.matrix : Matrix{}, g.matrix);
              ExpectPaddingIntact(b, g);
              return Contents(b, g.matrix);
            },
            kFloatTolerance, "Activate " + std::to_string(cols));
      }
    }
  }
}

// Every value on its own scale: the relative error of the exponential shows in the small ones.
TEST_P(Conformance, SiluIsRelativelyExact) {
  ThreadPool pool(1);
  const std::unique_ptr<Backend> cpu = Cpu(pool);
  std::vector<float> x;
  for (float value = -80; value <= 100; value += 0.0137f) x.push_back(value);
  const auto n = static_cast<int64_t>(x.size());
  const Owned gate = Make(*cpu, 1, n, x);
  cpu->Activate(Activation::kSilu, gate.matrix, {}, gate.matrix);
  const std::vector<float> found = Contents(*cpu, gate.matrix);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = x[i] / (1 + std::exp(-double{x[i]}));
    ASSERT_NEAR(found[i], exact, 1e-6 * std::fabs(exact)) << "at " << x[i];
  }
}

TEST_P(Conformance, ActivateAtTheEdges) {
  ThreadPool pool(1);
  const std::unique_ptr<Backend> cpu = Cpu(pool);
  const std::vector<float> x = {-1e30f, -1000, -100, 0, 100, 1000, 1e30f};
  for (const Activation activation : {Activation::kSilu, Activation::kGelu}) {
    const Owned gate = Make(*cpu, 1, 7, x);
    cpu->Activate(activation, gate.matrix, {}, gate.matrix);
    const std::vector<float> found = Contents(*cpu, gate.matrix);
    for (size_t i = 1; i < 4; ++i) EXPECT_NEAR(found[i], 0, 1e-30) << x[i];
    for (size_t i = 4; i < 7; ++i) EXPECT_EQ(found[i], x[i]);
  }
}

TEST_P(Conformance, Rope) {
  struct Case {
    int head_dim, n_rotated;
  };
  for (const Case c : {Case{8, 8},
                       {20, 20},
                       {64, 64},
                       {64, 32},
                       {80, 32},
                       {100, 100},
                       {128, 128},
                       {256, 64},
                       {96, 90}}) {
    for (const bool interleaved : {false, true}) {
      const std::vector<int32_t> positions = {0, 1, 5, 39, 17};
      constexpr int64_t kPositions = 40;
      std::vector<float> table;
      for (int64_t p = 0; p < kPositions; ++p) {
        for (int i = 0; i < c.n_rotated / 2; ++i) table.push_back(std::cos(0.37f * p / (i + 1)));
        for (int i = 0; i < c.n_rotated / 2; ++i) table.push_back(std::sin(0.37f * p / (i + 1)));
      }
      Random random(c.head_dim);
      const std::vector<float> x = random.Normal(5 * 3 * c.head_dim);
      Compare(
          [&](Backend& b) {
            const Owned t = Make(b, kPositions, c.n_rotated, table);
            const Owned rows = Make(b, 5, 3 * c.head_dim, x);
            b.Rope(rows.matrix, c.head_dim, positions,
                   {.table = t.matrix, .n_rotated = c.n_rotated, .interleaved = interleaved});
            ExpectPaddingIntact(b, rows);
            return Contents(b, rows.matrix);
          },
          kFloatTolerance, "Rope " + std::to_string(c.head_dim));
    }
  }
}

const TensorType kCacheTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                  TensorType::kQ8_0, TensorType::kQ4_0};

bool IsBlockType(TensorType type) { return gguf::InfoOf(type).block_elements > 1; }

// Reads the bytes of a storage through attention's own door: GetRows of a weight cannot see them,
// so rows are compared by attending to one slot at a time, which returns exactly its values.
std::vector<float> StoredValues(Backend& b, const HeadStore& store, TensorType type, int64_t n,
                                int dim) {
  std::vector<float> all;
  const Owned q = Make(b, 1, dim, std::vector<float>(static_cast<size_t>(dim), 0.0f));
  const Owned out = Make(b, 1, dim, std::vector<float>(static_cast<size_t>(dim), 0.0f));
  for (int64_t slot = 0; slot < n; ++slot) {
    HeadStore one = store;
    one.keys = store.values;
    one.keys_offset_bytes = store.values_offset_bytes;
    one.values_offset_bytes += slot * gguf::RowBytes(type, dim);
    one.n_slots = 1;
    b.Attend({.q = q.matrix,
              .out = out.matrix,
              .n_q_heads = 1,
              .key_dim = dim,
              .value_dim = dim,
              .key_type = type,
              .value_type = type,
              .scale = 1,
              .heads = {&one, 1},
              .taps = {}});
    const std::vector<float> row = Contents(b, out.matrix);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST_P(Conformance, StoreRows) {
  for (const TensorType type : kCacheTypes) {
    for (const int dim : {8, 20, 32, 64, 96, 100}) {
      if (IsBlockType(type) && dim % 32 != 0) continue;
      Random random(dim);
      std::vector<float> x = random.Normal(3 * 2 * dim);
      x[0] = 0;
      x[1] = 65519.0f;         // the largest float that rounds to a finite half
      x[2] = 6.1e-5f;          // a subnormal half
      x[3] = 1.0f + 0x1p-11f;  // halfway between two halves
      const std::vector<int64_t> first_slot = {2, 0};
      Compare(
          [&](Backend& b) {
            const int64_t row_bytes = gguf::RowBytes(type, dim);
            const std::unique_ptr<Storage> memory =
                std::move(b.Allocate(2 * 5 * row_bytes + 64)).value();
            const HeadStore stores[2] = {{memory.get(), memory.get(), 0, 0, 5},
                                         {memory.get(), memory.get(), 0, 5 * row_bytes, 5}};
            const Owned rows = Make(b, 3, 2 * dim, x);
            b.StoreRows(
                rows.matrix,
                {.heads = stores, .first_slot = first_slot, .type = type, .to_keys = false});
            std::vector<float> all = StoredValues(b, stores[0], type, 5, dim);
            const std::vector<float> second = StoredValues(b, stores[1], type, 5, dim);
            all.insert(all.end(), second.begin(), second.end());
            return all;
          },
          0, "StoreRows " + std::string(gguf::InfoOf(type).name) + " " + std::to_string(dim));
    }
  }
}

// --- attention ---

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

std::string NameOfTarget(const testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Targets, Conformance, testing::ValuesIn(CpuTargets()), NameOfTarget);
INSTANTIATE_TEST_SUITE_P(Targets, AttentionConformance, testing::ValuesIn(CpuTargets()),
                         NameOfTarget);

}  // namespace
}  // namespace winnow::kernels

// Norms, activations, Hadamard, RoPE and StoreRows on every instruction set this machine has,
// against the reference backend.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backends.h"
#include "kernels/overflow.h"
#include "kernels/testing/conformance.h"

namespace winnow::kernels {
namespace {

using namespace testing_support;  // NOLINT(google-build-using-namespace): a test's own vocabulary

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

// Compares each value relative to itself: small values show the relative error of the exponential.
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

// All backends add and subtract in the same order, so results agree to the last bit.
TEST_P(Conformance, Hadamard) {
  for (const int head_dim : {1, 2, 6, 8, 20, 32, 64, 80, 96, 128, 256}) {
    Random random(static_cast<uint64_t>(head_dim));
    const std::vector<float> x = random.Normal(5 * 3 * head_dim);
    Compare(
        [&](Backend& b) {
          const Owned rows = Make(b, 5, 3 * head_dim, x);
          b.Hadamard(rows.matrix, head_dim);
          ExpectPaddingIntact(b, rows);
          std::vector<float> once = Contents(b, rows.matrix);
          b.Hadamard(rows.matrix, head_dim);
          const std::vector<float> twice = Contents(b, rows.matrix);
          for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(twice[i], x[i], 1e-5);
          return once;
        },
        0, "Hadamard " + std::to_string(head_dim));
  }
  const std::unique_ptr<Backend> b = MakeReferenceBackend();
  const Owned row = Make(*b, 1, 6, std::vector<float>{1, 2, 3, 4, 5, 6});
  b->Hadamard(row.matrix, 6);  // blocks of two: sum and difference, each divided by the root of two
  const auto root = static_cast<float>(1 / std::sqrt(2.0));
  EXPECT_EQ(Contents(*b, row.matrix),
            (std::vector<float>{3 * root, -root, 7 * root, -root, 11 * root, -root}));
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

// Reads stored rows through attention, since GetRows reads only weights: attending to a single slot
// returns exactly its values.
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
      if (dim == 64) {
        // Blocks whose scale is 1, with values halfway between two steps: 127 and 8 are the ends of
        // the 8-bit and the 4-bit range.
        for (int i = 0; i < 32; ++i) {
          x[2 * dim + i] = i == 20 ? 127.0f : static_cast<float>(i) - 15.5f;
          x[2 * dim + 32 + i] = i == 20 ? -8.0f : static_cast<float>(i) / 2 - 7.5f;
          x[3 * dim + i] = i % 2 == 0 ? 8.0f : -8.0f;  // largest magnitude with both signs
          x[3 * dim + 32 + i] = 0;
        }
        x[2 * dim + 3] = std::nextafter(0.5f, 0.0f);
      }
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
          0, "StoreRows " + std::string(gguf::GetTypeInfo(type).name) + " " + std::to_string(dim));
    }
  }
}

TEST_P(Conformance, ValuesTooLargeForACacheTypeAreCounted) {
  for (const TensorType type : kCacheTypes) {
    constexpr int kDim = 96;  // several vectors per row; the places below cover different lanes
    const float limit = CacheLimit(type);
    const int64_t row_bytes = gguf::RowBytes(type, kDim);
    for (const int place : {0, 1, 31, 32, 62, 95, 96, 191}) {
      Compare(
          [&](Backend& b) {
            std::vector<float> x(2 * 2 * kDim, 1.0f);
            const std::unique_ptr<Storage> memory = std::move(b.Allocate(4 * row_bytes)).value();
            const HeadStore stores[2] = {{memory.get(), memory.get(), 0, 0, 2},
                                         {memory.get(), memory.get(), 2 * row_bytes, 0, 2}};
            const std::vector<int64_t> first_slot = {0, 0};
            const auto count = [&](float value) {
              x[static_cast<size_t>(place)] = value;
              const Owned rows = Make(b, 2, 2 * kDim, x);
              const int64_t before = NOverflowed(b);
              b.StoreRows(rows.matrix, {stores, first_slot, type, true});
              return static_cast<float>(NOverflowed(b) - before);
            };
            EXPECT_EQ(count(std::nextafter(limit, 0.0f)), 0);
            EXPECT_EQ(count(std::nanf("")), 0);
            EXPECT_EQ(count(-limit), 1);
            x[static_cast<size_t>((place + 3) % (2 * kDim))] = limit;
            EXPECT_EQ(count(limit), 2);
            return std::vector<float>{0};
          },
          0,
          "overflow of " + std::string(gguf::GetTypeInfo(type).name) + " at " +
              std::to_string(place));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Conformance, testing::ValuesIn(TestedTargets()), NameOfTarget);

}  // namespace
}  // namespace winnow::kernels

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backends.h"
#include "kernels/testing/conformance.h"

// Runs an attention call of any shape on any backend and compares the results with the reference's.
namespace winnow::kernels::testing_support {

// Relative to the largest magnitude of the expected values. Scores of a few units are sums of up to
// 256 float products, and the exponential amplifies their rounding errors.
inline constexpr double kAttentionTolerance = 1e-5;
// For Q8_0 and Q4_0 keys, queries are rounded to 8 bits per block of 32, unless attention rotates
// the keys.
inline constexpr double kQuantizedQueryTolerance = 1.5e-2;

enum class Rotate { kNot, kHalves, kInterleaved };

struct Shape {
  int64_t n_queries = 1;
  int64_t n_slots = 1;  // stored rows
  int kv_heads = 1;
  int group = 1;
  int key_dim = 64;
  int value_dim = 64;
  TensorType key_type = TensorType::kF32;
  TensorType value_type = TensorType::kF32;
  Rotate rotate = Rotate::kNot;
  int n_rotated = 0;     // 0: all of key_dim
  double magnitude = 1;  // of the rotations
  double shared = 0;     // entries per stored row; 0: entries are rows
  bool factors = false;  // entries have key factors
  bool biases = false;   // entries have score biases
  float top_p = 1;
  float spread = 1.5f;  // standard deviation of queries: the larger, the more the weights differ

  std::string Text() const {
    return std::to_string(n_queries) + " queries, " + std::to_string(n_slots) + " slots, " +
           std::to_string(kv_heads) + " x " + std::to_string(group) + " heads, dims " +
           std::to_string(key_dim) + ", " + std::to_string(value_dim) + ", " +
           std::string(gguf::GetTypeInfo(key_type).name) + ", " +
           std::string(gguf::GetTypeInfo(value_type).name) + ", rotation " +
           std::to_string(static_cast<int>(rotate)) + " of " + std::to_string(n_rotated) + " by " +
           std::to_string(magnitude) + ", " + std::to_string(shared) + " entries a row" +
           (factors ? ", factors" : "") + (biases ? ", biases" : "") + ", top_p " +
           std::to_string(top_p) + ", spread " + std::to_string(spread);
  }
  bool plain() const { return rotate == Rotate::kNot && shared == 0 && !factors && !biases; }
};

struct Answer {
  std::vector<float> out;
  Taps taps;
  int64_t n_attended = 0;
};

// Owns the data that HeadEntries views.
struct EntriesData {
  std::vector<int32_t> rows;
  std::vector<uint16_t> short_rows;
  std::vector<Half> factors;
  std::vector<int32_t> positions;
  int32_t query_position = 0;
  std::vector<Half> biases;
};

inline constexpr int64_t kTablePositions = 400;

inline EntriesData MakeEntries(const Shape& s, int64_t n_rows, Random& random) {
  EntriesData own;
  const auto n =
      static_cast<int64_t>(s.shared > 0 ? s.shared * static_cast<double>(n_rows) : n_rows);
  if (s.shared > 0) {
    for (int64_t i = 0; i < n; ++i) {
      // Every row once, then random rows, some much more often than others.
      const double at = std::fabs(random.Normal(1)[0]) * static_cast<double>(n_rows) / 4;
      own.rows.push_back(static_cast<int32_t>(
          i < n_rows ? (i * 7 + 3) % n_rows
                     : std::min<int64_t>(static_cast<int64_t>(at), n_rows - 1)));
    }
    // Even n_rows test short_rows, odd ones test rows.
    if (n_rows % 2 == 0) {
      own.short_rows.assign(own.rows.begin(), own.rows.end());
      own.rows.clear();
    }
  }
  if (s.factors) {
    for (const float value : random.Normal(n, 0.3f)) own.factors.emplace_back(1 + value);
  }
  if (s.biases) {
    for (const float value : random.Normal(n, 2)) own.biases.emplace_back(value);
  }
  if (s.rotate != Rotate::kNot) {
    for (int64_t i = 0; i < n; ++i) {
      own.positions.push_back(static_cast<int32_t>((i * 13) % (kTablePositions - s.n_queries)));
    }
    own.query_position = static_cast<int32_t>(kTablePositions - s.n_queries);
  }
  return own;
}

inline std::vector<float> MakeAngles(int n_rotated, double magnitude = 1) {
  const int n_pairs = n_rotated / 2;
  std::vector<double> frequencies;
  frequencies.reserve(static_cast<size_t>(n_pairs));
  for (int pair = 0; pair < n_pairs; ++pair) {
    frequencies.push_back(std::pow(1e4, -2.0 * pair / n_rotated));
  }
  std::vector<float> table;
  for (int64_t position = 0; position < kTablePositions; ++position) {
    for (const bool sine : {false, true}) {
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(position) * frequency;
        table.push_back(static_cast<float>(magnitude * (sine ? std::sin(angle) : std::cos(angle))));
      }
    }
  }
  return table;
}

// What a call of a shape works on. Most of a test's time would go into making it again for every
// backend.
struct Inputs {
  Shape shape = {};
  int n_rotated = 0;               // 0: nothing is rotated
  std::vector<float> q = {};       // [n_queries, kv_heads * group * key_dim]
  std::vector<float> angles = {};  // [kTablePositions, n_rotated]
  struct Head {
    int64_t n = 0;                              // rows
    std::vector<float> keys = {}, values = {};  // [n, key_dim], [n, value_dim]
    EntriesData entries = {};
  };
  std::vector<Head> heads = {};
};

// Heads have different numbers of slots, as after an eviction: head h has n_slots + 5 h.
inline Inputs MakeInputs(const Shape& s) {
  Random random(s.n_slots * 1000 + s.n_queries);
  Inputs in = {.shape = s,
               .q = random.Normal(s.n_queries * s.kv_heads * s.group * s.key_dim, s.spread)};
  for (int head = 0; head < s.kv_heads; ++head) {
    const int64_t n = s.n_slots + 5 * head;
    std::vector<float> keys = random.Normal(n * s.key_dim);
    std::vector<float> values = random.Normal(n * s.value_dim);
    in.heads.push_back({.n = n,
                        .keys = std::move(keys),
                        .values = std::move(values),
                        .entries = MakeEntries(s, n, random)});
  }
  if (s.rotate != Rotate::kNot) {
    in.n_rotated = s.n_rotated == 0 ? s.key_dim : s.n_rotated;
    in.angles = MakeAngles(in.n_rotated, s.magnitude);
  }
  return in;
}

// With n_at_once > 1, the same call goes to AttendAll that many times; all results must be equal.
inline Answer RunAttention(Backend& b, const Inputs& in, const TapSpec& taps, int n_at_once = 1) {
  const Shape& s = in.shape;
  const int n_q_heads = s.kv_heads * s.group;
  const Owned q = Make(b, s.n_queries, n_q_heads * s.key_dim, in.q);
  std::vector<Owned> outs;
  outs.reserve(static_cast<size_t>(n_at_once));
  for (int i = 0; i < n_at_once; ++i) {
    outs.push_back(
        Make(b, s.n_queries, n_q_heads * s.value_dim,
             std::vector<float>(static_cast<size_t>(s.n_queries * n_q_heads * s.value_dim),
                                std::numeric_limits<float>::quiet_NaN())));
  }
  std::vector<std::unique_ptr<Storage>> memory;
  std::vector<HeadStore> heads;
  std::vector<HeadEntries> entries;
  for (const Inputs::Head& head : in.heads) {
    const int64_t n = head.n;
    // Exactly the size of the rows, so that AddressSanitizer catches reads past the last one.
    memory.push_back(std::move(b.Allocate(n * gguf::RowBytes(s.key_type, s.key_dim))).value());
    memory.push_back(std::move(b.Allocate(n * gguf::RowBytes(s.value_type, s.value_dim))).value());
    const HeadStore store = {memory[memory.size() - 2].get(), memory.back().get(), 0, 0, n};
    const int64_t first[1] = {0};
    const Owned keys = Make(b, n, s.key_dim, head.keys);
    const Owned values = Make(b, n, s.value_dim, head.values);
    b.StoreRows(keys.matrix, {{&store, 1}, first, s.key_type, true});
    b.StoreRows(values.matrix, {{&store, 1}, first, s.value_type, false});
    heads.push_back(store);
    const EntriesData& e = head.entries;
    if (s.plain()) continue;
    entries.push_back({e.rows, e.short_rows, e.factors, e.positions, e.query_position, e.biases});
  }
  const Owned table =
      in.n_rotated == 0 ? Owned{} : Make(b, kTablePositions, in.n_rotated, in.angles);
  const RopeTable rope = {table.matrix, in.n_rotated, s.rotate == Rotate::kInterleaved};
  // Old content of a reused Taps must not matter.
  const Taps used = {.last_rows = {{7}, {8, 9}},
                     .n_last_rows = 1,
                     .n_last_sums = 3,
                     .last_sums = {{4, 5}},
                     .column_sums = {{1, 2, 3}},
                     .square_sums = {}};
  std::vector<Answer> answers(static_cast<size_t>(n_at_once), Answer{{}, used, 0});
  std::vector<Attention> calls;
  for (size_t i = 0; i < answers.size(); ++i) {
    calls.push_back({.q = q.matrix,
                     .out = outs[i].matrix,
                     .n_q_heads = n_q_heads,
                     .key_dim = s.key_dim,
                     .value_dim = s.value_dim,
                     .key_type = s.key_type,
                     .value_type = s.value_type,
                     .scale = 1 / std::sqrt(static_cast<float>(s.key_dim)),
                     .heads = heads,
                     .rope = s.rotate == Rotate::kNot ? nullptr : &rope,
                     .entries = entries,
                     .top_p = s.top_p,
                     .n_attended = &answers[i].n_attended,
                     .taps = taps,
                     .found = &answers[i].taps});
  }
  if (n_at_once == 1) {
    b.Attend(calls[0]);
  } else {
    b.AttendAll(calls);
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!taps.any()) answers[i].taps = {};
    answers[i].out = Contents(b, outs[i].matrix);
    ExpectPaddingIntact(b, outs[i]);
    EXPECT_EQ(answers[i].out, answers[0].out) << s.Text();
    EXPECT_EQ(answers[i].n_attended, answers[0].n_attended) << s.Text();
    EXPECT_EQ(answers[i].taps.last_rows, answers[0].taps.last_rows) << s.Text();
    EXPECT_EQ(answers[i].taps.column_sums, answers[0].taps.column_sums) << s.Text();
    EXPECT_EQ(answers[i].taps.column_max, answers[0].taps.column_max) << s.Text();
  }
  return answers[0];
}

class AttentionConformanceBase : public Conformance {
 protected:
  // Results with the first thread count are compared with the reference's, and with those of the
  // other thread counts.
  explicit AttentionConformanceBase(std::initializer_list<int> n_threads) {
    for (const int n : n_threads) pools_.push_back(std::make_unique<ThreadPool>(n));
  }

  template <typename Lists>
  static void ExpectListsClose(const Lists& found, const Lists& expected, double tolerance,
                               const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (size_t i = 0; i < expected.size(); ++i)
      ExpectClose(found[i], expected[i], tolerance, what);
  }

  void Check(const Shape& shape, const TapSpec& taps = {}) {
    const std::unique_ptr<Backend> reference = MakeReferenceBackend();
    const Inputs inputs = MakeInputs(shape);
    const Answer expected = RunAttention(*reference, inputs, taps);
    const bool quantized = IsBlockType(shape.key_type) && shape.rotate == Rotate::kNot;
    const double tolerance = quantized ? kQuantizedQueryTolerance : kAttentionTolerance;
    const Answer found = RunAttention(*Cpu(*pools_[0]), inputs, taps);
    ExpectClose(found.out, expected.out, tolerance, shape.Text());
    ASSERT_EQ(found.taps.n_last_rows, expected.taps.n_last_rows) << shape.Text();
    ExpectListsClose(found.taps.last_rows, expected.taps.last_rows, 2 * tolerance,
                     "last rows, " + shape.Text());
    ASSERT_EQ(found.taps.n_last_sums, expected.taps.n_last_sums) << shape.Text();
    ExpectListsClose(found.taps.last_sums, expected.taps.last_sums, 2 * tolerance,
                     "sums over the last rows, " + shape.Text());
    ExpectListsClose(found.taps.column_sums, expected.taps.column_sums, 2 * tolerance,
                     "column sums, " + shape.Text());
    ExpectListsClose(found.taps.square_sums, expected.taps.square_sums, 4 * tolerance,
                     "square sums, " + shape.Text());
    if (!quantized) {
      EXPECT_EQ(found.n_attended, expected.n_attended) << shape.Text();
    }
    ExpectListsClose(found.taps.column_max, expected.taps.column_max, 2 * tolerance,
                     "largest of columns, " + shape.Text());
#ifndef WINNOW_SANITIZES_MEMORY  // CPU families differ in prefetching, which sanitizers do not see
    for (const char* family : {"intel", "amd"}) {  // one of them often suits this machine
      const Answer other = RunAttention(*Cpu(*pools_[0], family), inputs, taps);
      ExpectClose(other.out, expected.out, tolerance, shape.Text() + ", as on " + family);
    }
#endif
    for (size_t i = 1; i < pools_.size(); ++i) {
      // One call, or more calls than threads so that calls share the threads.
      const int n_at_once = i % 2 == 0 ? pools_[i]->n_threads() + 1 : 1;
      const Answer again = RunAttention(*Cpu(*pools_[i]), inputs, taps, n_at_once);
      const std::string what = shape.Text() + " with " + std::to_string(pools_[i]->n_threads()) +
                               " threads, " + std::to_string(n_at_once) + " at once";
      EXPECT_EQ(again.out, found.out) << what;
      EXPECT_EQ(again.n_attended, found.n_attended) << what;
      EXPECT_EQ(again.taps.last_rows, found.taps.last_rows) << what;
      EXPECT_EQ(again.taps.last_sums, found.taps.last_sums) << what;
      EXPECT_EQ(again.taps.column_sums, found.taps.column_sums) << what;
      EXPECT_EQ(again.taps.square_sums, found.taps.square_sums) << what;
      EXPECT_EQ(again.taps.column_max, found.taps.column_max) << what;
    }
  }

  std::vector<std::unique_ptr<ThreadPool>> pools_;
};

}  // namespace winnow::kernels::testing_support

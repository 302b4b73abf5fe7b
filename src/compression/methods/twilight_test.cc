#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attention/layer_pass.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"
#include "kernels/backends.h"

namespace winnow::compression::methods {
namespace {

using Floats = std::vector<float>;

TEST(TwilightTest, EvictsNothing) {
  testing::Harness h(testing::Make(Twilight()), {});
  h.Prefill(50, [](const testing::Cell&) { return 0.0; });
  for (int step = 0; step < 5; ++step) h.Decode([](const testing::Cell&) { return 0.0; });
  EXPECT_EQ(h.Kept().size(), 55u);
  EXPECT_TRUE(h.plans().empty());
}

TEST(TwilightTest, SelectsInsideAttention) {
  const MethodPtr method = testing::Make(Twilight(), "p=0.85,dense_layers=1");
  EXPECT_EQ(method->traits().attention.top_p, 0.85f);
  EXPECT_EQ(method->traits().attention.dense_layers, 1);
  EXPECT_FALSE(method->traits().budget.needed);
  EXPECT_FALSE(method->traits().decisions.Evicts(Phase::kPrefill));
  EXPECT_FALSE(method->traits().decisions.evicts_in_decode);
  EXPECT_EQ(method->needs(), Needs()) << "selection and taps do not go together";
}

struct Shape {
  int n_layers = 3, n_kv_heads = 1, group = 1, dim = 4;
  int64_t n_prompt = 1, n_steps = 4;
  double sharpness = 1;  // of attention

  int n_q_heads() const { return n_kv_heads * group; }
  Floats Query(int layer, int head, int64_t t) const {
    Floats query = testing::RandomVector({1, layer, head, t}, dim);
    for (float& x : query) x *= static_cast<float>(sharpness);
    return query;
  }
  Floats Key(int layer, int head, int64_t t) const {
    return testing::RandomVector({2, layer, head, t}, dim);
  }
  Floats Value(int layer, int head, int64_t t) const {
    return testing::RandomVector({3, layer, head, t}, dim);
  }
};

// What one query head of a token puts out over the tokens up to it.
struct Output {
  std::vector<double> values;
  int64_t n_attended = 0;
};

// Attention over the smallest set of entries whose weights add up to p, renormalised; p = 1: over
// all.
Output PlainAttention(const Shape& s, int layer, int q_head, int64_t token, double p) {
  std::vector<std::pair<double, int64_t>> weights;  // and the token
  const Floats query = s.Query(layer, q_head, token);
  double all = 0;
  for (int64_t t = 0; t <= token; ++t) {
    const Floats key = s.Key(layer, q_head / s.group, t);
    double logit = 0;
    for (size_t i = 0; i < query.size(); ++i) logit += double{query[i]} * key[i];
    weights.emplace_back(std::exp(logit), t);
    all += weights.back().first;
  }
  std::sort(weights.rbegin(), weights.rend());
  Output out = {.values = std::vector<double>(static_cast<size_t>(s.dim))};
  double sum = 0;
  for (const auto& [weight, t] : weights) {
    if (p < 1 && sum >= p * all) break;
    sum += weight;
    ++out.n_attended;
    const Floats value = s.Value(layer, q_head / s.group, t);
    for (size_t i = 0; i < value.size(); ++i) out.values[i] += weight * value[i];
  }
  for (double& x : out.values) x /= sum;
  return out;
}

// The prompt and the steps after it through attention, the steps with the policy that the method
// states, as runtime runs them.
class Stream {
 public:
  Stream(kernels::Backend& backend, const Shape& shape, const Method& method)
      : backend_(backend),
        s_(shape),
        method_(method),
        pass_(backend, {.n_heads = s_.n_q_heads(), .key_dim = s_.dim, .scale = 1}) {
    cache_ = cache::Cache::Make(backend, {.shape = {.n_layers = s_.n_layers,
                                                    .n_kv_heads = s_.n_kv_heads,
                                                    .key_dim = s_.dim,
                                                    .value_dim = s_.dim},
                                          .key_type = kernels::TensorType::kF32,
                                          .value_type = kernels::TensorType::kF32,
                                          .capacity = s_.n_prompt + s_.n_steps})
                 .value();
  }

  // Output of one layer for the next n tokens: [row, q_head * dim].
  Floats Layer(int layer, int64_t first, int64_t n, bool step) {
    const auto make = [&](int n_heads, const auto& vector, std::unique_ptr<kernels::Storage>& in) {
      Floats rows;
      for (int64_t t = first; t < first + n; ++t) {
        for (int head = 0; head < n_heads; ++head) {
          const Floats one = vector(head, t);
          rows.insert(rows.end(), one.begin(), one.end());
        }
      }
      const int64_t cols = int64_t{n_heads} * s_.dim;
      in = backend_.Allocate(n * cols * int64_t{sizeof(float)}).value();
      const kernels::Matrix matrix = {in.get(), 0, n, cols, cols};
      backend_.Write(matrix, rows);
      return matrix;
    };
    std::unique_ptr<kernels::Storage> q, k, v, out;
    const auto query = [&](int head, int64_t t) { return s_.Query(layer, head, t); };
    const auto key = [&](int head, int64_t t) { return s_.Key(layer, head, t); };
    const auto value = [&](int head, int64_t t) { return s_.Value(layer, head, t); };
    std::vector<Position> positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), static_cast<Position>(first));
    attention::Sequence sequence;
    sequence.cache = cache_.get();
    sequence.n_attended = &n_attended;
    if (step) sequence.policy = method_.traits().attention;
    const attention::LayerPass::Span span = {.sequence = &sequence, .n_rows = n};
    pass_.Start(layer, rope_, {&span, 1});
    const kernels::Matrix outputs = make(s_.n_q_heads(), query, out);  // overwritten
    const auto done = pass_.Run({.q = make(s_.n_q_heads(), query, q),
                                 .k = make(s_.n_kv_heads, key, k),
                                 .v = make(s_.n_kv_heads, value, v),
                                 .out = outputs,
                                 .positions = positions});
    EXPECT_TRUE(done.has_value());
    Floats found(static_cast<size_t>(n * outputs.cols));
    backend_.Read(outputs, found);
    return found;
  }

  int64_t n_attended = 0;

 private:
  kernels::Backend& backend_;
  Shape s_;
  const Method& method_;
  attention::LayerPass pass_;
  kernels::RopeTable rope_;
  std::unique_ptr<cache::Cache> cache_;
};

// Prompts are attended in full; in each step every query head of the later layers attends to its
// own smallest set.
TEST(TwilightTest, StepsAttendToTheSmallestSetThatHoldsTheShare) {
  ThreadPool pool(1);
  const auto reference = kernels::MakeReferenceBackend();
  const auto cpu = kernels::MakeCpuBackend({.pool = &pool, .target = {}}).value();
  int64_t n_selected = 0, n_all = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    Shape s;
    s.n_kv_heads = 1 + draw(3);
    s.group = 1 + draw(4);
    s.dim = 8 << draw(3);
    s.n_prompt = 1 + draw(seed % 5 == 0 ? 200 : 40);
    s.sharpness = 0.5 * (1 + draw(4));
    const int dense_layers = draw(4);
    const double p = std::vector{0.02, 0.3, 0.7, 0.9, 0.99, 1.0}[static_cast<size_t>(draw(6))];
    const MethodPtr method = testing::Make(
        Twilight(), "p=" + std::to_string(p) + ",dense_layers=" + std::to_string(dense_layers));
    kernels::Backend& backend = seed % 2 == 0 ? *reference : *cpu;
    Stream stream(backend, s, *method);
    for (int64_t first = 0; first < s.n_prompt + s.n_steps;) {
      const bool step = first > 0;
      const int64_t n = step ? 1 : s.n_prompt;
      for (int layer = 0; layer < s.n_layers; ++layer) {
        stream.n_attended = 0;
        const Floats found = stream.Layer(layer, first, n, step);
        const bool selects = step && layer >= dense_layers && p < 1;
        int64_t n_attended = 0;
        for (int64_t row = 0; row < n; ++row) {
          for (int head = 0; head < s.n_q_heads(); ++head) {
            const Output expected = PlainAttention(s, layer, head, first + row, selects ? p : 1.0);
            n_attended += expected.n_attended;
            for (int i = 0; i < s.dim; ++i) {
              const auto at = static_cast<size_t>((row * s.n_q_heads() + head) * s.dim + i);
              ASSERT_NEAR(found[at], expected.values[static_cast<size_t>(i)], 1e-4)
                  << "seed " << seed << " layer " << layer << " token " << first + row << " p "
                  << p;
            }
          }
        }
        if (!selects) continue;
        EXPECT_EQ(stream.n_attended, n_attended) << "seed " << seed;
        n_selected += n_attended;
        n_all += s.n_q_heads() * (first + 1);
      }
      first += n;
    }
  }
  EXPECT_LT(n_selected, n_all * 8 / 10);
  EXPECT_GT(n_selected, n_all / 10);
}

}  // namespace
}  // namespace winnow::compression::methods

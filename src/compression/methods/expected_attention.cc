// Expected Attention (arXiv:2510.00636): the attention an entry would receive from future queries,
// drawn from the normal distribution of the prompt's queries. With mean mu and covariance C of a
// query head before RoPE, R the mean rotation of the next `future` positions, and key k as it is
// stored:
//  logit = k . R mu / sqrt(d) + k . R C R' k / (2 d)
//  score = (mean over the group of softmax(logit) + epsilon) * |v|
// Based on the authors' code in kvpress. The heads of a layer compete, as in its published results.
// Differs: R includes positions beyond the model's context; the prompt's queries are those of the
// call (of a chunk, where prompts are read in chunks).
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/prompt_queries.h"
#include "compression/score/rope_angles.h"
#include "compression/score/stored_keys.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct ExpectedAttentionConfig {
  int future = 512;  // [code]
  int sinks = 4;     // [code]
  bool covariance = true;
  bool value_norm = true;
  double epsilon = 0.01;           // [leaderboard of kvpress; class default: 0]
  budget::CompetingConfig budget;  // [same: AdaKV, alpha 0.2]
};

template <class Visitor>
void Visit(ExpectedAttentionConfig& c, Visitor& v) {
  v("future", c.future, "positions after the prompt that are averaged over", Range{1, 1 << 16});
  v("sinks", c.sinks, "first tokens that always stay, and whose queries do not count",
    Range{0, 1 << 20});
  v("covariance", c.covariance, "use the covariance of the queries, not only their mean");
  v("value_norm", c.value_norm, "multiply by the norm of the value");
  v("epsilon", c.epsilon, "added to expected attention before it is multiplied", Range{0, 1});
  Visit(c.budget, v);
}

// Mean and covariance of one query head's queries, rotated to the positions that come next.
struct Moments {
  std::vector<double> mean;        // [dim]
  std::vector<double> covariance;  // [dim, dim]
};

class ExpectedScorer final : public Scorer {
 public:
  explicit ExpectedScorer(const ExpectedAttentionConfig& config) : c_(config) {}

  std::string_view name() const override { return "expected"; }
  Needs needs() const override { return score::NeedsPromptQueries(); }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    std::vector<std::vector<double>> logits;  // [head of the group][rank in the region]
    for (int head = kv_head * call.group(); head < (kv_head + 1) * call.group(); ++head) {
      logits.push_back(Logits(call, kv_head, RotatedMoments(call, head), region));
      Softmax(logits.back());
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = 0;
      for (const std::vector<double>& one : logits) out[i] += one[i] / call.group();
    }
    if (!c_.value_norm) return;
    score::ForEachRow(call, kv_head, call.cache.values(call.layer, kv_head), region.begin,
                      region.end, [&](int64_t rank, std::span<const float> value) {
                        double& score = out[static_cast<size_t>(rank - region.begin)];
                        score = (score + c_.epsilon) * std::sqrt(score::SquareNorm(value));
                      });
  }

 private:
  Moments RotatedMoments(const LayerCall& call, int head) const {
    Moments moments = QueryMoments(call, head);
    // The mean rotation rotates and shrinks every pair.
    const score::RopeAngles angles(call.backend, *call.rope);
    std::vector<std::complex<double>> rotation(angles.n_pairs());
    for (size_t pair = 0; pair < rotation.size(); ++pair) {
      for (int i = 0; i < c_.future; ++i) {
        rotation[pair] +=
            angles.At(pair, static_cast<double>(call.n_seen + i)) / static_cast<double>(c_.future);
      }
    }
    const auto rotate = [&](std::span<double> first, size_t step) {
      for (size_t pair = 0; pair < rotation.size(); ++pair) {
        double& a = first[angles.real(pair) * step];
        double& b = first[angles.imaginary(pair) * step];
        const std::complex<double> rotated = rotation[pair] * std::complex<double>(a, b);
        a = rotated.real();
        b = rotated.imag();
      }
    };
    const size_t dim = moments.mean.size();
    rotate(moments.mean, 1);
    const std::span<double> covariance(moments.covariance);
    for (size_t i = 0; c_.covariance && i < dim; ++i) rotate(covariance.subspan(i * dim), 1);
    for (size_t i = 0; c_.covariance && i < dim; ++i) rotate(covariance.subspan(i), dim);
    return moments;
  }

  Moments QueryMoments(const LayerCall& call, int head) const {
    const auto dim = static_cast<size_t>(call.cache.config().shape.key_dim);
    const attention::Rows& rows = *call.rows;
    const auto query = [&](size_t row) { return score::PromptQuery(call, row, head); };
    Moments moments = {.mean = std::vector<double>(dim), .covariance = {}};
    double n = 0;
    for (size_t row = 0; row < rows.positions.size(); ++row) {
      if (rows.positions[row] < c_.sinks) continue;
      const auto q = query(row);
      for (size_t d = 0; d < dim; ++d) moments.mean[d] += q[d];
      n += 1;
    }
    for (double& x : moments.mean) x /= std::max(n, 1.0);
    if (!c_.covariance) return moments;
    moments.covariance.resize(dim * dim);
    std::vector<double> centred(dim);
    for (size_t row = 0; row < rows.positions.size(); ++row) {
      if (rows.positions[row] < c_.sinks) continue;
      const auto q = query(row);
      for (size_t d = 0; d < dim; ++d) centred[d] = q[d] - moments.mean[d];
      for (size_t i = 0; i < dim; ++i) {
        double* const out = moments.covariance.data() + i * dim;
        for (size_t j = 0; j < dim; ++j) out[j] += centred[i] * centred[j];
      }
    }
    for (double& x : moments.covariance) x /= std::max(n, 1.0);
    return moments;
  }

  std::vector<double> Logits(const LayerCall& call, int kv_head, const Moments& moments,
                             Region region) const {
    const size_t dim = moments.mean.size();
    const double scale = call.scale;
    std::vector<double> logits(static_cast<size_t>(region.size()));
    score::ForEachKey(call, kv_head, region.begin, region.end,
                      [&](int64_t rank, std::span<const float> key) {
                        double linear = 0, quadratic = 0;
                        for (size_t i = 0; i < dim; ++i) linear += moments.mean[i] * key[i];
                        for (size_t i = 0; c_.covariance && i < dim; ++i) {
                          const double* const row = moments.covariance.data() + i * dim;
                          double product = 0;
                          for (size_t j = 0; j < dim; ++j) product += row[j] * key[j];
                          quadratic += product * key[i];
                        }
                        logits[static_cast<size_t>(rank - region.begin)] =
                            scale * linear + scale * scale * quadratic / 2;
                      });
    return logits;
  }

  ExpectedAttentionConfig c_;
};

Result<MethodPtr> Make(const ExpectedAttentionConfig& c) {
  const Regions regions = {.sinks = c.sinks, .recent = 0};
  return Compose({.min_budget = regions.MinBudget(),
                  .score = std::make_shared<ExpectedScorer>(c),
                  .budget = budget::Competing(c.budget),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = regions,
                  .when = When::kPrefill});
}

Promise Promises(const ExpectedAttentionConfig& c, int64_t) { return {.sinks = c.sinks}; }

}  // namespace

MethodEntry ExpectedAttention() {
  return Entry<ExpectedAttentionConfig, Make, Promises>(
      "expected-attention",
      "attention expected from queries like the prompt's, times the value's norm",
      "Expected Attention, arXiv:2510.00636");
}

}  // namespace winnow::compression::methods

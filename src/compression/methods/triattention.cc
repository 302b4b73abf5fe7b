// TriAttention (arXiv:2604.04921): the queries of a head before RoPE cluster around a centre, so
// that attention to a key is a sum of cosines of their distance. With q the mean query and k a key
// as complex pairs before RoPE, at frequencies w, and D the distance to a future query:
//  score = sum over pairs of |q| |k| cos(w D + arg(q / k)) + (mean |q| - |q|) |k|
// averaged over queries 1, 2, 4 ... `farthest` positions after the prompt. The scores of each query
// head are standardized (mean 0, deviation 1); an entry's score is the maximum over the group.
// Differs from the authors' code: centres come from the prompt's own queries, not from a
// calibration text; the prompt is compressed, not the generated tokens (their switch
// allow_prefill_compression); dimensions that do not rotate add the product of mean query and key.
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

struct TriAttentionConfig {
  enum class Group { kMax, kMean };
  int farthest = 65536;  // [code]
  Group group = Group::kMax;
  bool normalise = true;  // [paper; the code has it as a switch]
  int sinks = 0;
  CountOrShare recent = 0;
};

template <class Visitor>
void Visit(TriAttentionConfig& c, Visitor& v) {
  v("farthest", c.farthest, "distances after the prompt: powers of two up to this",
    Range{1, 1 << 24});
  v("group", c.group, "over the query heads of a group", Choices{"max", "mean"});
  v("normalise", c.normalise, "bring every query head's scores to mean 0 and deviation 1 first");
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
}

// Statistics of one query head's queries before RoPE.
struct Centre {
  std::vector<std::complex<double>> mean;  // [pair]
  std::vector<double> mean_length;         // [pair]
  std::vector<double> rest;                // [dimension that does not rotate], mean
};

class TrigonometricScorer final : public Scorer {
 public:
  explicit TrigonometricScorer(const TriAttentionConfig& config) : c_(config) {}

  std::string_view name() const override { return "trigonometric"; }
  Needs needs() const override { return score::NeedsPromptQueries(); }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const score::RopeAngles angles(call.backend, *call.rope);
    const bool max = c_.group == TriAttentionConfig::Group::kMax;
    std::vector<double> scores(out.size());
    for (int i = 0; i < call.group(); ++i) {
      ScoreHead(call, kv_head, MeanDirection(call, angles, kv_head * call.group() + i), angles,
                region, scores);
      if (c_.normalise) Normalise(scores);
      for (size_t j = 0; j < out.size(); ++j) {
        if (i == 0) {
          out[j] = scores[j];
        } else {
          out[j] = max ? std::max(out[j], scores[j], ScoreLess) : out[j] + scores[j];
        }
      }
    }
  }

 private:
  static Centre MeanDirection(const LayerCall& call, const score::RopeAngles& angles, int head) {
    const auto dim = static_cast<size_t>(call.cache.config().shape.key_dim);
    const size_t n_rows = call.rows->positions.size();
    const double share = 1.0 / static_cast<double>(std::max<size_t>(n_rows, 1));
    Centre centre = {.mean = std::vector<std::complex<double>>(angles.n_pairs()),
                     .mean_length = std::vector<double>(angles.n_pairs()),
                     .rest = std::vector<double>(dim - 2 * angles.n_pairs())};
    for (size_t row = 0; row < n_rows; ++row) {
      const std::span<const float> query = score::PromptQuery(call, row, head);
      for (size_t pair = 0; pair < angles.n_pairs(); ++pair) {
        const std::complex<double> q = angles.Pair(query, pair);
        centre.mean[pair] += share * q;
        centre.mean_length[pair] += share * std::abs(q);
      }
      for (size_t i = 0; i < centre.rest.size(); ++i) {
        centre.rest[i] += share * query[2 * angles.n_pairs() + i];
      }
    }
    return centre;
  }

  // Stored keys are rotated to their positions, so the distance enters only through the query's
  // position, and its mean over the distances is one complex factor per frequency.
  void ScoreHead(const LayerCall& call, int kv_head, const Centre& centre,
                 const score::RopeAngles& angles, Region region, std::span<double> out) const {
    std::vector<std::complex<double>> query(angles.n_pairs());
    for (size_t pair = 0; pair < query.size(); ++pair) {
      double n = 0;
      for (int64_t distance = 1; distance <= c_.farthest; distance *= 2, n += 1) {
        query[pair] += angles.At(pair, static_cast<double>(call.n_seen + distance));
      }
      query[pair] *= centre.mean[pair] / n;
    }
    score::ForEachKey(call, kv_head, region.begin, region.end,
                      [&](int64_t rank, std::span<const float> key) {
                        double score = 0;
                        for (size_t pair = 0; pair < query.size(); ++pair) {
                          const std::complex<double> k = angles.Pair(key, pair);
                          score += (query[pair] * std::conj(k)).real();
                          score += (centre.mean_length[pair] - std::abs(centre.mean[pair])) *
                                   angles.magnitude() * std::abs(k);
                        }
                        for (size_t i = 0; i < centre.rest.size(); ++i) {
                          score += centre.rest[i] * key[2 * angles.n_pairs() + i];
                        }
                        out[static_cast<size_t>(rank - region.begin)] = score;
                      });
  }

  static void Normalise(std::span<double> scores) {
    const auto n = static_cast<double>(scores.size());
    double mean = 0, square = 0;
    for (const double score : scores) mean += score / n;
    for (const double score : scores) square += (score - mean) * (score - mean) / n;
    const double deviation = std::max(std::sqrt(square), 1e-6);
    for (double& score : scores) score = (score - mean) / deviation;
  }

  TriAttentionConfig c_;
};

Result<MethodPtr> Make(const TriAttentionConfig& c) {
  const Regions regions = {.sinks = c.sinks, .recent = c.recent};
  return Compose({.min_budget = regions.MinBudget(),
                  .score = std::make_shared<TrigonometricScorer>(c),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = regions,
                  .when = When::kPrefill});
}

Promise Promises(const TriAttentionConfig& c, int64_t) { return {.exact = true, .sinks = c.sinks}; }

}  // namespace

MethodEntry TriAttention() {
  return Entry<TriAttentionConfig, Make, Promises>(
      "triattention", "keys that the mean query of a head attends to, by distance",
      "TriAttention, arXiv:2604.04921");
}

}  // namespace winnow::compression::methods

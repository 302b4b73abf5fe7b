// Combinations of parts that no other method has, against plain loops written from the parts'
// formulas (docs/methods/semantics.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression {
namespace {

using testing::Cell;
using testing::Harness;
using testing::Make;
using Positions = std::vector<Position>;

constexpr int kDim = 4;

// `window` is the parameter of the score: the queries that it reads.
struct Parts {
  std::string score = "window", reduce = "mean", budget = "uniform", select = "topk";
  int window = 4, block = 1;
  double alpha = 0.2;
  bool step = false;
  int sinks = 0, recent = -1;
  int64_t size = 0;
  int n_kv_heads = 1, group = 1;

  bool reads_window() const { return score == "window" || score == "last"; }
  std::string Spec() const {
    const std::string n = std::to_string(window);
    std::string of_score;
    if (score == "window") of_score = "(" + n + ",kernel=3,reduce=" + reduce + ")";
    if (score == "last") of_score = "(queries=" + n + ",per_layer=false,reduce=" + reduce + ")";
    if (score == "heavy" || score == "running_mean") of_score = "(reduce=" + reduce + ")";
    return "score=" + score + of_score + ",budget=" + budget +
           (budget == "competing" ? "(" + std::to_string(alpha) + ")" : "") + ",select=" + select +
           (select == "blocks" ? "(" + std::to_string(block) + ")" : "") +
           ",when=" + (step ? "step" : "prefill") + ",sinks=" + std::to_string(sinks) +
           ",recent=" + std::to_string(recent);
  }
};

struct Entry {
  Position position = 0;
  std::vector<double> key = {};
  double sum = 0, n_queries = 0;  // of all attention since it came
  double votes = 0, n_votes = 0;  // of the call's last queries
};
using Head = std::vector<Entry>;

struct PlainLayer {
  Parts c;
  std::vector<Head> heads = std::vector<Head>(static_cast<size_t>(c.n_kv_heads));

  int64_t Recent() const {
    const bool is_window = c.recent < 0 && !c.step && c.reads_window() && c.window > 1;
    if (!is_window) return std::max(c.recent, 0);
    return c.size <= c.window ? std::max<int64_t>(1, c.size / 2) : c.window;
  }
  // Queries of a call that vote: a window is no longer than what it protects.
  int64_t Voters(int64_t n) const {
    const bool shrinks = c.score == "window" && c.size <= c.window;
    return std::min<int64_t>(n, shrinks ? std::max<int64_t>(1, c.size / 2) : c.window);
  }

  // Reads n tokens. key(kv_head, position), weight(q_head, query of the call, position).
  template <class Key, class Weight>
  void Read(Position first, int64_t n, bool decode, const Key& key, const Weight& weight) {
    for (int head = 0; head < c.n_kv_heads; ++head) {
      Head& entries = heads[static_cast<size_t>(head)];
      for (Entry& entry : entries) entry.votes = entry.n_votes = 0;
      for (int64_t query = 0; query < n; ++query) {
        const auto token = static_cast<Position>(first + query);
        entries.push_back({.position = token, .key = key(head, token)});
        for (Entry& entry : entries) {
          double sum = 0, max = 0;
          for (int q_head = head * c.group; q_head < (head + 1) * c.group; ++q_head) {
            const double one = weight(q_head, query, entry.position);
            sum += one;
            max = std::max(max, one);
          }
          const double reduced = c.reduce == "max" ? max : sum / c.group;
          entry.sum += reduced;
          entry.n_queries += 1;
          if (query < n - Voters(n)) continue;
          entry.votes += reduced;
          entry.n_votes += 1;
        }
      }
    }
    if (decode && !c.step) return;
    Evict();
  }

  // [entry between the sinks and the recent ones]
  std::vector<double> Scores(const Head& entries) const {
    std::vector<double> mean(kDim);
    for (const Entry& entry : entries) {
      for (size_t d = 0; d < kDim; ++d) mean[d] += entry.key[d] / Norm(entry.key);
    }
    const auto end = std::max(c.sinks + Recent(), std::ssize(entries)) - Recent();
    std::vector<double> scores;
    for (int64_t i = c.sinks; i < end; ++i) {
      const Entry& entry = entries[static_cast<size_t>(i)];
      const auto score = [&]() -> double {
        if (c.score == "age") return entry.position;
        if (c.score == "heavy") return entry.sum;
        if (c.score == "running_mean") return entry.sum / entry.n_queries;
        if (c.score == "last") return entry.votes / entry.n_votes;
        if (c.score == "key_norm") return -Norm(entry.key);
        if (c.score == "window") return entry.votes;
        const double dot = std::inner_product(mean.begin(), mean.end(), entry.key.begin(), 0.0);
        return -dot / Norm(mean) / Norm(entry.key);
      };
      scores.push_back(score());
    }
    if (c.score != "window") return scores;
    std::vector<double> pooled;  // the largest of three neighbours
    for (int64_t i = 0; i < std::ssize(scores); ++i) {
      const auto begin = scores.begin() + std::max<int64_t>(0, i - 1);
      const auto stop = scores.begin() + std::min<int64_t>(std::ssize(scores), i + 2);
      pooled.push_back(*std::max_element(begin, stop));
    }
    return pooled;
  }
  static double Norm(const std::vector<double>& x) {
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  }

  void Evict() {
    std::vector<std::vector<double>> scores;
    for (const Head& head : heads) scores.push_back(Scores(head));
    const auto share = static_cast<size_t>(std::max<int64_t>(0, c.size - c.sinks - Recent()));
    const std::vector<size_t> sizes = Sizes(scores, share);
    for (size_t head = 0; head < heads.size(); ++head) {
      if (sizes[head] >= scores[head].size()) continue;
      const std::vector<bool> stays = Select(scores[head], sizes[head]);
      Head left;
      for (size_t i = 0; i < heads[head].size(); ++i) {
        const auto at = static_cast<int64_t>(i) - c.sinks;
        const bool candidate = at >= 0 && at < std::ssize(scores[head]);
        if (!candidate || stays[static_cast<size_t>(at)]) left.push_back(heads[head][i]);
      }
      heads[head] = left;
    }
  }

  std::vector<size_t> Sizes(const std::vector<std::vector<double>>& scores, size_t share) const {
    std::vector<size_t> sizes(scores.size(), share);
    if (c.budget == "uniform") return sizes;
    // Every head keeps its reserved part, at least one entry if nothing is protected; then the
    // places go out one by one, to the head whose next entry is the best.
    auto reserved = static_cast<size_t>(c.alpha * static_cast<double>(share));
    if (c.sinks + Recent() == 0) reserved = std::max(reserved, std::min<size_t>(1, share));
    size_t left = share * scores.size();
    std::vector<std::vector<double>> ranked = scores;
    for (size_t head = 0; head < scores.size(); ++head) {
      std::ranges::sort(ranked[head], std::greater());
      sizes[head] = std::min(reserved, scores[head].size());
      left -= sizes[head];
    }
    for (; left > 0; --left) {
      size_t to = scores.size();
      for (size_t head = 0; head < scores.size(); ++head) {
        if (sizes[head] == scores[head].size()) continue;
        const auto next = [&](size_t i) { return ranked[i][sizes[i]]; };
        if (to == scores.size() || next(head) > next(to)) to = head;
      }
      if (to == scores.size()) break;
      ++sizes[to];
    }
    return sizes;
  }

  // The best `size` entries, or whole blocks with the best means; of equal ones the newer.
  std::vector<bool> Select(const std::vector<double>& scores, size_t size) const {
    const auto block = static_cast<size_t>(c.select == "blocks" ? c.block : 1);
    std::vector<std::pair<double, size_t>> blocks;
    for (size_t first = 0; first < scores.size(); first += block) {
      const size_t end = std::min(first + block, scores.size());
      double sum = 0;
      for (size_t i = first; i < end; ++i) sum += scores[i];
      blocks.emplace_back(sum / static_cast<double>(end - first), first);
    }
    std::sort(blocks.rbegin(), blocks.rend());
    std::vector<bool> stays(scores.size());
    for (size_t i = 0; i < size / block; ++i) {
      for (size_t j = 0; j < block && blocks[i].second + j < scores.size(); ++j) {
        stays[blocks[i].second + j] = true;
      }
    }
    return stays;
  }

  Positions Kept(int head) const {
    Positions kept;
    for (const Entry& entry : heads[static_cast<size_t>(head)]) kept.push_back(entry.position);
    return kept;
  }
};

// A prompt in one or several calls, generated tokens, and another prompt.
void Compare(const Parts& parts, uint64_t seed) {
  constexpr int kLayers = 2;
  Rng rng(seed);
  const auto key = [&](int layer, int head, Position t) {
    return testing::RandomVector({static_cast<int64_t>(seed), layer, head, t}, kDim);
  };
  Harness h(Make(methods::Custom(), parts.Spec()), {.n_layers = kLayers,
                                                    .n_q_heads = parts.n_kv_heads * parts.group,
                                                    .n_kv_heads = parts.n_kv_heads,
                                                    .dim = kDim,
                                                    .budget = parts.size});
  h.SetKeys(key);
  std::vector<PlainLayer> layers(kLayers, PlainLayer{.c = parts});
  for (int call = 0; call < 24; ++call) {
    const bool decode = call > 0 && call % 12 > 2;
    const int64_t n = decode ? 1 : 1 + static_cast<int64_t>(rng.Below(call == 0 ? 60 : 25));
    const auto weight = [&](int layer, int q_head, int64_t query, Position position) {
      return testing::Random({static_cast<int64_t>(seed), call, layer, q_head, query, position});
    };
    const auto first = static_cast<Position>(h.n_seen());
    const testing::Weights weights = [&](const Cell& cell) {
      return weight(cell.layer, cell.q_head, cell.query, cell.position);
    };
    decode ? h.Decode(weights) : h.Prefill(n, weights);
    for (int layer = 0; layer < kLayers; ++layer) {
      PlainLayer& plain = layers[static_cast<size_t>(layer)];
      plain.Read(
          first, n, decode,
          [&](int head, Position t) {
            const std::vector<float> made = key(layer, head, t);
            return std::vector<double>(made.begin(), made.end());
          },
          [&](int q_head, int64_t query, Position position) {
            return weight(layer, q_head, query, position);
          });
      for (int head = 0; head < parts.n_kv_heads; ++head) {
        ASSERT_EQ(h.Kept(layer, head), plain.Kept(head))
            << parts.Spec() << ", budget " << parts.size << ", seed " << seed << ", call " << call;
      }
    }
  }
}

TEST(CustomRandomTest, ScoresBudgetsAndSelectionsAgreeWithPlainLoops) {
  uint64_t seed = 0;
  for (const char* score :
       {"age", "heavy", "running_mean", "key_norm", "key_difference", "last", "window"}) {
    for (const char* budget : {"uniform", "competing"}) {
      for (const char* select : {"topk", "blocks"}) {
        for (int turn = 0; turn < 12 && !::testing::Test::HasFatalFailure(); ++turn) {
          Rng rng(++seed);
          const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
          Parts parts = {.score = score, .budget = budget, .select = select};
          parts.reduce = draw(2) == 0 ? "mean" : "max";
          parts.window = 1 + draw(7);
          parts.block = 1 + draw(4);
          parts.alpha = 0.25 * draw(5);
          // The window of a prompt says nothing about steps.
          parts.step = turn % 2 == 0 && parts.score != "window";
          parts.sinks = draw(2) * draw(4);
          parts.recent = draw(2) == 0 ? -1 : draw(6);
          parts.n_kv_heads = 1 + draw(3);
          parts.group = 1 + draw(3);
          const int64_t min = Make(methods::Custom(), parts.Spec())->traits().budget.min;
          parts.size = min + draw(30);
          Compare(parts, seed);
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::compression

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "compression/testing/harness.h"

namespace winnow::compression::testing {

// Scores of window methods in plain loops, written from SnapKV's formulas
// (docs/methods/semantics.md#snapkv): the last queries of a call vote for the entries before the
// window; the votes are pooled over neighbours.
struct PlainWindow {
  int64_t window = 32;
  std::string pool = "max";  // none, average
  int64_t kernel = 7;
  std::string reduce = "mean";  // max, sum: over the query heads of a group
  bool prefix_softmax = false;  // each query head's row is divided by its sum over the prefix

  std::string Parameters() const {
    return "window=" + std::to_string(window) + ",pool=" + pool +
           ",kernel=" + std::to_string(kernel) + ",reduce=" + reduce +
           ",prefix_softmax=" + (prefix_softmax ? "true" : "false");
  }

  // Entries of the window under a budget.
  int64_t Under(int64_t budget) const {
    return budget <= window ? std::max<int64_t>(1, budget / 2) : window;
  }

  // [entry before the window]. `entries` are those of a KV head after a call of n tokens, oldest
  // first, with `group` query heads; weight(q_head, query of the call, position).
  template <class Weight>
  std::vector<double> Scores(const std::vector<Position>& entries, int64_t n, int64_t budget,
                             std::pair<int, int> kv_head_and_group, const Weight& weight) const {
    const auto [kv_head, group] = kv_head_and_group;
    const int64_t prefix = std::max<int64_t>(0, std::ssize(entries) - Under(budget));
    std::vector<double> votes(static_cast<size_t>(prefix));
    for (int64_t query = std::max<int64_t>(0, n - Under(budget)); query < n; ++query) {
      std::vector<std::vector<double>> rows;  // [q_head]
      for (int q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
        std::vector<double> row;
        double sum = 0;
        for (size_t j = 0; j < votes.size(); ++j) {
          row.push_back(weight(q_head, query, entries[j]));
          sum += row.back();
        }
        if (prefix_softmax && sum > 0) {
          for (double& x : row) x /= sum;
        }
        rows.push_back(row);
      }
      for (size_t j = 0; j < votes.size(); ++j) {
        double sum = 0, max = 0;
        for (const std::vector<double>& row : rows) {
          sum += row[j];
          max = std::max(max, row[j]);
        }
        votes[j] += reduce == "max" ? max : reduce == "sum" ? sum : sum / group;
      }
    }
    return Pooled(votes);
  }

  // Averages count zeros beyond the ends; maxima ignore them.
  std::vector<double> Pooled(const std::vector<double>& x) const {
    if (pool == "none") return x;
    std::vector<double> pooled;
    for (int64_t j = 0; j < std::ssize(x); ++j) {
      double sum = 0, max = 0;
      for (int64_t i = j - kernel / 2; i <= j + kernel / 2; ++i) {
        if (i < 0 || i >= std::ssize(x)) continue;
        sum += x[static_cast<size_t>(i)];
        max = std::max(max, x[static_cast<size_t>(i)]);
      }
      pooled.push_back(pool == "max" ? max : sum / static_cast<double>(kernel));
    }
    return pooled;
  }
};

// Indices from the best score to the worst; of equal ones the newer first.
inline std::vector<int64_t> BestFirst(const std::vector<double>& scores) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a > b;
  });
  return order;
}

}  // namespace winnow::compression::testing

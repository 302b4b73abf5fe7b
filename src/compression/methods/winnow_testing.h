#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "cache/plan.h"

// winnow as plain loops in doubles, written from its description (docs/methods/winnow.md and
// semantics.md) without sharing code with the method: every sum is computed anew, hulls are
// computed point by point, and the budget is given out entry by entry.
namespace winnow::compression::methods::plain {

using cache::Position;
using Vec = std::vector<double>;

// The smallest relative difference between numbers that decisions compared. If it is far above
// float rounding, a method that computes in floats decides the same.
class Margin {
 public:
  void Note(double a, double b) {
    if (a != b)
      smallest_ = std::min(smallest_, std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b)));
  }
  double smallest() const { return smallest_; }

 private:
  double smallest_ = 1;
};

struct Entry {
  Position position = 0;
  Vec key, value;
  double bias = 0;
};

// One query head's query in a reference row.
struct Query {
  int64_t row = 0;  // among the reference rows
  int head = 0;     // of the group
  Vec q;
  double rho = 1;               // norm of the residual stream
  int64_t n_unseen = 0;         // newest entries that it does not see
  std::vector<Entry> own = {};  // other entries that it sees: the replay's
};

struct Output {
  double mass = 0;
  Vec value;
};

inline double Dot(const Vec& a, const Vec& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

inline std::vector<Vec> Identity(size_t n) {
  std::vector<Vec> rows(n, Vec(n));
  for (size_t i = 0; i < n; ++i) rows[i][i] = 1;
  return rows;
}

inline double Mass(const Query& query, const Entry& entry) {
  return std::exp(Dot(query.q, entry.key) + entry.bias);
}

// Attention of a query over its own entries and those of `which` that it sees.
inline Output Attend(const Query& query, const std::vector<Entry>& entries,
                     std::span<const int64_t> which) {
  Output out = {.mass = 0, .value = Vec(entries[0].value.size())};
  const auto add = [&](const Entry& entry) {
    const double mass = Mass(query, entry);
    out.mass += mass;
    for (size_t d = 0; d < out.value.size(); ++d) out.value[d] += mass * entry.value[d];
  };
  for (const int64_t i : which) {
    if (i < std::ssize(entries) - query.n_unseen) add(entries[static_cast<size_t>(i)]);
  }
  for (const Entry& entry : query.own) add(entry);
  for (double& x : out.value) x /= out.mass;
  return out;
}

inline std::vector<int64_t> Ranks(int64_t first, int64_t end) {
  std::vector<int64_t> ranks(static_cast<size_t>(end - first));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

// Attention weights of a query: [entry].
inline Vec AttentionWeights(const Query& query, const std::vector<Entry>& entries) {
  const double mass = Attend(query, entries, Ranks(0, std::ssize(entries))).mass;
  Vec weights(entries.size());
  for (size_t i = 0; i < entries.size() - static_cast<size_t>(query.n_unseen); ++i) {
    weights[i] = Mass(query, entries[i]) / mass;
  }
  return weights;
}

struct Point {
  int64_t size = 0;
  double error = 0;
};
using Curve = std::vector<Point>;

inline double Between(const Point& a, const Point& b, int64_t size) {
  if (a.size == b.size) return a.error;
  const double part = static_cast<double>(size - a.size) / static_cast<double>(b.size - a.size);
  return a.error + part * (b.error - a.error);
}

// The lower convex hull at one size: the minimum of all chords over it.
inline double HullAt(const Curve& curve, int64_t size) {
  double least = std::numeric_limits<double>::infinity();
  for (const Point& a : curve) {
    for (const Point& b : curve) {
      if (a.size <= size && size <= b.size) least = std::min(least, Between(a, b, size));
    }
  }
  return least;
}

// Sizes [head]: every head gets its floor; then each entry of the budget goes to the head whose
// hull falls most by it, of equal ones the earlier.
inline std::vector<int64_t> Fill(const std::vector<Curve>& curves, int64_t floor, int64_t total,
                                 Margin& margin) {
  std::vector<int64_t> sizes;
  std::vector<Curve> from_floor;
  for (const Curve& curve : curves) {
    const int64_t size = std::min(floor, curve.back().size);
    sizes.push_back(size);
    total -= size;
    Curve rest;
    for (size_t i = 0; i < curve.size(); ++i) {
      if (curve[i].size >= std::max<int64_t>(1, size)) {
        if (rest.empty() && i > 0 && curve[i].size > size)
          rest.push_back({size, Between(curve[i - 1], curve[i], size)});
        rest.push_back(curve[i]);
      }
    }
    from_floor.push_back(rest);
  }
  const auto gain = [&](size_t head) {
    if (sizes[head] == curves[head].back().size) return -1.0;
    if (sizes[head] == 0) return std::numeric_limits<double>::infinity();
    return HullAt(from_floor[head], sizes[head]) - HullAt(from_floor[head], sizes[head] + 1);
  };
  Vec gains(curves.size());
  for (size_t head = 0; head < gains.size(); ++head) gains[head] = gain(head);
  for (; total > 0; --total) {
    // Along a segment of its hull a head's gains are equal up to rounding, so it keeps receiving
    // entries.
    const auto best = std::ranges::max_element(gains);
    if (*best < 0) break;
    const auto head = static_cast<size_t>(best - gains.begin());
    ++sizes[head];
    gains[head] = gain(head);
    if (total > 1) continue;
    for (size_t other = 0; other < gains.size(); ++other) {
      if (other != head && gains[other] >= 0) margin.Note(*best, gains[other]);
    }
  }
  return sizes;
}

// Solves A x = b for several right-hand sides, by Gauss-Jordan elimination with partial pivoting.
inline std::vector<Vec> Solve(std::vector<Vec> a, std::vector<Vec> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    size_t pivot = i;
    for (size_t j = i + 1; j < a.size(); ++j) {
      if (std::fabs(a[j][i]) > std::fabs(a[pivot][i])) pivot = j;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    for (size_t j = 0; j < a.size(); ++j) {
      if (j == i) continue;
      const double factor = a[j][i] / a[i][i];
      for (size_t k = 0; k < a.size(); ++k) a[j][k] -= factor * a[i][k];
      for (size_t k = 0; k < b[j].size(); ++k) b[j][k] -= factor * b[i][k];
    }
  }
  for (size_t i = 0; i < a.size(); ++i) {
    for (double& x : b[i]) x /= a[i][i];
  }
  return b;
}

// One KV head and its reference rows.
struct Head {
  std::vector<Entry> entries;                 // oldest first
  std::vector<Query> queries;                 // of the reference rows
  Vec scores;                                 // [entry]
  std::vector<std::vector<Vec>> projections;  // [query head of the group][model dim][value dim]

  // Of the call, before any eviction.
  std::vector<Output> targets;  // [query]
  int64_t n_before = 0;

  void RaiseScores(const Query& query) {
    const Vec weights = AttentionWeights(query, entries);
    scores.resize(entries.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = std::max(scores[i], weights[i]);
  }

  // Ranks [first, end), the first to keep first; of equal scores the newer.
  std::vector<int64_t> Order(int64_t first, int64_t end) const {
    std::vector<int64_t> ranks = Ranks(first, end);
    std::ranges::sort(ranks, [&](int64_t a, int64_t b) {
      const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
      return x != y ? x > y : a > b;
    });
    return ranks;
  }

  // Errors of the first entries of an order together with the fixed ones, against all of both.
  Curve Errors(const std::vector<int64_t>& fixed, const std::vector<int64_t>& order) const {
    Curve curve;
    const auto n = std::ssize(order);
    for (int64_t size = 1, i = 1; n > 0; ++i) {
      curve.push_back({size, ErrorAt(fixed, order, size)});
      if (size == n) break;
      size =
          size < 8
              ? size + 1
              : static_cast<int64_t>(std::round(8 * std::pow(2.0, static_cast<double>(i - 7) / 3)));
      size = std::min(size, n);
    }
    return curve;
  }

  double ErrorAt(const std::vector<int64_t>& fixed, const std::vector<int64_t>& order,
                 int64_t size) const {
    std::vector<int64_t> all = fixed, some = fixed;
    all.insert(all.end(), order.begin(), order.end());
    some.insert(some.end(), order.begin(), order.begin() + size);
    double error = 0;
    for (const Query& query : queries) {
      Vec difference = Attend(query, entries, all).value;
      const Vec of_some = Attend(query, entries, some).value;
      for (size_t d = 0; d < difference.size(); ++d) difference[d] -= of_some[d];
      for (const Vec& row : projections[static_cast<size_t>(query.head)]) {
        error += std::pow(Dot(row, difference) / query.rho, 2);
      }
    }
    return error;
  }

  // Merges entries that do not stay into n_rest rows, or evicts them if n_rest is 0. If they are no
  // more than n_rest, all stay.
  void Shrink(const std::vector<bool>& stays, int64_t n_rest) {
    n_before = std::ssize(entries);
    targets.clear();
    std::vector<Vec> weights;
    for (const Query& query : queries) {
      targets.push_back(Attend(query, entries, Ranks(0, n_before)));
      weights.push_back(AttentionWeights(query, entries));
    }
    std::vector<size_t> gone;
    for (size_t i = 0; i < stays.size(); ++i) {
      if (!stays[i]) gone.push_back(i);
    }
    if (std::ssize(gone) <= n_rest) return;
    std::vector<bool> left = stays;
    std::vector<Entry> shrunk = entries;
    for (size_t i = 0; i < static_cast<size_t>(n_rest); ++i) {
      const auto n = static_cast<size_t>(n_rest);
      const std::vector<size_t> run(
          gone.begin() + static_cast<ptrdiff_t>(i * gone.size() / n),
          gone.begin() + static_cast<ptrdiff_t>((i + 1) * gone.size() / n));
      double of_run = 0, of_mean = 0;
      Entry mean = {.position = entries[run.back()].position,
                    .key = Vec(entries[0].key.size()),
                    .value = Vec(entries[0].value.size())};
      for (const size_t j : run) {
        double attended = 0;
        for (const Vec& of_query : weights) attended += of_query[j];
        of_run += attended;
        for (size_t d = 0; d < mean.key.size(); ++d) mean.key[d] += attended * entries[j].key[d];
        for (size_t d = 0; d < mean.value.size(); ++d)
          mean.value[d] += attended * entries[j].value[d];
      }
      for (double& x : mean.key) x /= of_run;
      for (double& x : mean.value) x /= of_run;
      for (size_t q = 0; q < queries.size(); ++q)
        of_mean += Mass(queries[q], mean) / targets[q].mass;
      mean.bias = std::clamp(std::log(of_run / of_mean), -8.0, 8.0);
      shrunk[run.back()] = mean;
      left[run.back()] = true;
    }
    entries.clear();
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i]) entries.push_back(shrunk[i]);
    }
  }

  // A reference query's weights over the stored entries, and its output's residual, both over rho.
  struct Equation {
    Vec weights, missing;
  };
  std::vector<Equation> Equations(bool held_back) const {
    std::vector<Equation> equations;
    for (size_t q = 0; q < queries.size(); ++q) {
      const Query& query = queries[q];
      if ((query.row % 4 == 3) != held_back) continue;
      Equation one = {AttentionWeights(query, entries), targets[q].value};
      const Vec found = Attend(query, entries, Ranks(0, std::ssize(entries))).value;
      for (size_t d = 0; d < found.size(); ++d)
        one.missing[d] = (one.missing[d] - found[d]) / query.rho;
      for (double& x : one.weights) x /= query.rho;
      equations.push_back(one);
    }
    return equations;
  }

  double MissingIn(bool held_back) const {
    double sum = 0;
    for (const Equation& one : Equations(held_back)) sum += Dot(one.missing, one.missing);
    return sum;
  }

  // Fits the values. Returns whether the fit was kept.
  bool Refit(Margin& margin) {
    if (std::ssize(entries) == n_before) return false;
    const std::vector<Equation> used = Equations(false);
    const size_t n = entries.size(), dim = entries[0].value.size();
    // (A^T A + r I) x = A^T R, the same as x = A^T (A A^T + r I)^-1 R.
    std::vector<Vec> products(n, Vec(n)), right(n, Vec(dim));
    double trace = 0;
    for (const Equation& one : used) {
      trace += Dot(one.weights, one.weights);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) products[i][j] += one.weights[i] * one.weights[j];
        for (size_t d = 0; d < dim; ++d) right[i][d] += one.weights[i] * one.missing[d];
      }
    }
    for (size_t i = 0; i < n; ++i) products[i][i] += trace / static_cast<double>(used.size());
    const std::vector<Vec> step = Solve(products, right);
    const double before = MissingIn(true);
    std::vector<Entry> old = entries;
    for (size_t i = 0; i < n; ++i) {
      for (size_t d = 0; d < dim; ++d) entries[i].value[d] += step[i][d];
    }
    const double after = MissingIn(true);
    margin.Note(before, after);
    if (after < before) return true;
    entries = std::move(old);
    return false;
  }
};

}  // namespace winnow::compression::methods::plain

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compression/method.h"
#include "compression/methods/ems_state.h"
#include "compression/testing/harness.h"

// For the tests of EMS: an entry's key as attention sees it, and a second implementation that
// stores the keys and values of classes apart from the members.
namespace winnow::compression::methods::ems {

// An entry's key as attention sees it: its row times its factor.
inline std::vector<double> RuntimeKey(const testing::Harness& h, int64_t rank, int layer = 0,
                                      int head = 0) {
  const Slot slot = h.cache().order(layer, head)[static_cast<size_t>(rank)];
  const double factor = h.cache().factors(layer, head)[static_cast<size_t>(slot)];
  std::vector<double> key;
  for (const float x : h.Key(rank, layer, head)) key.push_back(factor * x);
  return key;
}

using Vec = std::vector<double>;

inline double Dot(const Vec& a, const Vec& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
inline double Cosine(const Vec& a, const Vec& b) {
  const double squares = Dot(a, a) * Dot(b, b);
  return squares == 0 ? 0 : Dot(a, b) / std::sqrt(squares);
}

struct PlainConfig {
  int64_t window = 4, kernel = 3, budget = 14, n_protect = 0;
  double gamma = 2, tau = 0.6;
  std::string similarity = "both";
  int64_t n_classes() const { return budget - window; }
  int64_t n_to_merge() const {
    return static_cast<int64_t>((gamma - 1) * static_cast<double>(budget) + 1e-9);
  }
};

struct PlainClass {
  Position founder = 0;
  Vec direction, value;
};

struct PlainToken {
  Position position = 0;
  double global = 0, past = 0, current = 0;
  double norm = 0;
  Vec key, value;         // of its own, while local
  std::optional<int> of;  // class
  double local() const { return past + current; }
};

// A window sum as the cache stores it, rounded to half.
inline double Rounded(double sum) { return Half(static_cast<float>(sum)); }

struct PlainHead {
  PlainConfig c;
  std::vector<PlainToken> tokens;  // members, then local entries
  std::map<int, PlainClass> classes;
  int next_class = 0;
  int64_t counter = 0;
  int64_t n_merged = 0, n_dropped = 0, n_left = 0;

  double Compare(const Vec& ka, const Vec& va, const Vec& kb, const Vec& vb) const {
    if (c.similarity == "key") return Cosine(ka, kb);
    if (c.similarity == "value") return Cosine(va, vb);
    return Cosine(ka, kb) * Cosine(va, vb);
  }
  int64_t n_members() const {
    return std::count_if(tokens.begin(), tokens.end(),
                         [](const PlainToken& t) { return t.of.has_value(); });
  }

  void Found(PlainToken& token) {
    token.of = next_class++;
    token.norm = std::sqrt(Dot(token.key, token.key));
    Vec direction = token.key;
    for (double& x : direction) x /= token.norm;
    classes[*token.of] = {token.position, direction, token.value};
  }

  Vec Scores() const {
    double local = 0, global = 0;
    for (const PlainToken& t : tokens) {
      local += t.local();
      global += t.global;
    }
    Vec scores;
    for (const PlainToken& t : tokens)
      scores.push_back(std::max(local / global * t.global, t.local()));
    return scores;
  }

  void Prompt() {
    const auto n = static_cast<int64_t>(tokens.size());
    const int64_t n_old = n - std::min(n, c.window);
    const Vec scores = Scores();
    Vec pooled;
    for (int64_t i = 0; i < n_old; ++i) {
      double sum = 0;
      for (int64_t e = -c.kernel / 2; e <= c.kernel / 2; ++e) {
        if (i + e >= 0 && i + e < n_old) sum += scores[static_cast<size_t>(i + e)];
      }
      pooled.push_back(sum / static_cast<double>(c.kernel));
    }
    std::vector<int64_t> ranking;
    for (int64_t i = n_old - 1; i >= 0; --i) ranking.push_back(i);  // the newer first on ties
    std::stable_sort(ranking.begin(), ranking.end(), [&](int64_t a, int64_t b) {
      return pooled[static_cast<size_t>(a)] > pooled[static_cast<size_t>(b)];
    });
    std::set<int64_t> gone;
    for (int64_t place = 0; place < n_old; ++place) {
      PlainToken& token = tokens[static_cast<size_t>(ranking[static_cast<size_t>(place)])];
      if (place < c.n_classes()) Found(token);
    }
    std::vector<PlainToken> before = tokens;
    std::map<int, std::vector<int64_t>> members;
    for (int64_t place = 0; place < n_old; ++place) {
      const int64_t i = ranking[static_cast<size_t>(place)];
      PlainToken& token = tokens[static_cast<size_t>(i)];
      if (place < c.n_classes()) {
        members[*token.of].push_back(i);
        continue;
      }
      double best = -2;
      int64_t target = -1;
      for (int64_t y = 0; y < n_old; ++y) {
        const auto founded = std::find(ranking.begin(), ranking.end(), y) - ranking.begin();
        if (founded >= c.n_classes() || founded < c.n_protect) continue;
        const PlainToken& other = before[static_cast<size_t>(y)];
        const double similarity = Compare(token.key, token.value, other.key, other.value);
        if (similarity > best) {
          best = similarity;
          target = y;
        }
      }
      if (place >= c.n_classes() + c.n_to_merge() || best < c.tau) {
        gone.insert(i);
        continue;
      }
      token.norm = std::sqrt(Dot(token.key, token.key));
      token.of = before[static_cast<size_t>(target)].of;
      members[*token.of].push_back(i);
      ++n_merged;
    }
    for (auto& [id, list] : members) {
      double sum = 0;
      for (const int64_t i : list) sum += tokens[static_cast<size_t>(i)].local();
      Vec direction(tokens[0].key.size()), value(tokens[0].value.size());
      for (const int64_t i : list) {
        const PlainToken& t = tokens[static_cast<size_t>(i)];
        for (size_t x = 0; x < direction.size(); ++x)
          direction[x] += t.local() / sum * t.key[x] / t.norm;
        for (size_t x = 0; x < value.size(); ++x) value[x] += t.local() / sum * t.value[x];
      }
      if (list.size() > 1) {
        for (const int64_t i : list) {
          PlainToken& t = tokens[static_cast<size_t>(i)];
          t.norm = Factor(t.norm);
        }
        classes[id].direction = direction;
        classes[id].value = value;
      }
    }
    for (auto i = gone.rbegin(); i != gone.rend(); ++i) tokens.erase(tokens.begin() + *i);
  }

  void Promote() {
    const auto promoted = static_cast<size_t>(n_members());
    const Position promoted_position = tokens[promoted].position;
    Found(tokens[promoted]);
    const Vec scores = Scores();
    std::map<int, double> importance, weight;
    for (size_t i = 0; i <= promoted; ++i) {
      double& best = importance.try_emplace(*tokens[i].of, 0).first->second;
      best = std::max(best, scores[i]);
      weight[*tokens[i].of] += tokens[i].local();
    }
    if (static_cast<int64_t>(classes.size()) > c.n_classes()) {
      std::vector<int> ids;
      for (const auto& [id, entry] : classes) ids.push_back(id);
      std::sort(ids.begin(), ids.end(),
                [&](int a, int b) { return importance[a] < importance[b]; });
      const int x = ids[0];
      int y = -1;
      double best = -2;
      for (size_t i = 1; i + static_cast<size_t>(c.n_protect) < ids.size(); ++i) {
        const PlainClass& a = classes[x];
        const PlainClass& b = classes[ids[i]];
        const double similarity = Compare(a.direction, a.value, b.direction, b.value);
        if (similarity > best) {
          best = similarity;
          y = ids[i];
        }
      }
      if (y >= 0 && best >= c.tau && c.n_to_merge() > 0) {
        const double sum = weight[x] + weight[y];
        for (size_t i = 0; i < classes[y].direction.size(); ++i) {
          classes[y].direction[i] =
              (weight[x] * classes[x].direction[i] + weight[y] * classes[y].direction[i]) / sum;
          classes[y].value[i] =
              (weight[x] * classes[x].value[i] + weight[y] * classes[y].value[i]) / sum;
        }
        for (PlainToken& t : tokens) {
          if (t.of == x) t.of = y;
          if (t.of == y) t.norm = Factor(t.norm);
        }
        ++n_merged;
      } else {
        std::erase_if(tokens, [&](const PlainToken& t) { return t.of == x; });
        ++n_dropped;
      }
      classes.erase(x);
    }
    if (n_members() > c.n_classes() + c.n_to_merge()) {
      std::map<int, int> size;
      for (const PlainToken& t : tokens) {
        if (t.of) ++size[*t.of];
      }
      size_t victim = tokens.size();
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (!tokens[i].of || size[*tokens[i].of] < 2 || tokens[i].position == promoted_position)
          continue;
        if (victim == tokens.size() || scores[i] < scores[victim]) victim = i;
      }
      ASSERT_LT(victim, tokens.size());
      tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(victim));
      ++n_left;
    }
  }
};

}  // namespace winnow::compression::methods::ems

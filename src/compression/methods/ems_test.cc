#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compression/methods/ems_classes.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using testing::Weights;

// A method that is told the taps by hand: numbers of the text need not be those of an attention.
class WithTaps final : public Method {
 public:
  WithTaps(MethodPtr method, kernels::Taps taps)
      : method_(std::move(method)), taps_(std::move(taps)) {}
  const Traits& traits() const override { return method_->traits(); }
  Needs needs() const override {
    return {.prefill = {}, .decode = {}, .state = method_->needs().state};
  }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    method_->Decide(call.WithTaps(taps_), plans);
  }

 private:
  MethodPtr method_;
  kernels::Taps taps_;
};

// s_Loc all in the first row of the window.
kernels::Taps Taps(std::vector<double> global, std::vector<float> local, int window) {
  kernels::Taps taps;
  taps.n_last_rows = window;
  taps.last_rows = {std::move(local)};
  taps.last_rows[0].resize(global.size() * static_cast<size_t>(window));
  taps.column_sums = {std::move(global)};
  return taps;
}

// What attention sees of an entry: its row times its factor.
std::vector<double> RuntimeKey(const Harness& h, int64_t rank, int layer = 0, int head = 0) {
  const Slot slot = h.cache().order(layer, head)[static_cast<size_t>(rank)];
  const double factor = h.cache().factors(layer, head)[static_cast<size_t>(slot)];
  std::vector<double> key;
  for (const float x : h.Key(rank, layer, head)) key.push_back(factor * x);
  return key;
}

Slot SharedRow(const Harness& h, int64_t rank, int layer = 0, int head = 0) {
  const Slot slot = h.cache().order(layer, head)[static_cast<size_t>(rank)];
  return h.cache().rows(layer, head)[static_cast<size_t>(slot)];
}

void ExpectNear(const std::vector<double>& found, const std::vector<double>& expected,
                double tolerance = 1e-6) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance);
}

// The worked example of the scores: s_GL = [1, .5, .7, .4, .6]. With gamma = 1 the best stay.
TEST(EmsTest, ScoresBalanceGlobalAndLocal) {
  const std::vector<std::vector<Position>> kept = {
      {0, 5}, {0, 2, 5}, {0, 2, 4, 5}, {0, 1, 2, 4, 5}};
  for (int64_t n_founders = 1; n_founders <= 4; ++n_founders) {
    const auto method =
        std::make_shared<WithTaps>(testing::Make(Ems(), "window=1,kernel=1,gamma=1"),
                                   Taps({4, 2, 1, .6, .4, 0}, {.2f, .1f, .7f, .4f, .6f, 0}, 1));
    Harness h(method, {.budget = n_founders + 1});
    h.Prefill(6, [](const Cell&) { return 0.0; });
    EXPECT_EQ(h.Kept(), kept[static_cast<size_t>(n_founders - 1)]);
  }
}

// The worked example of the prefill.
TEST(EmsTest, MergesAPrompt) {
  const std::vector<std::vector<float>> keys = {{2, 0}, {1, .2f}, {0, 1},     {0, 3},
                                                {1, 1}, {-1, 0},  {.5f, .1f}, {.3f, .3f}};
  const std::vector<std::vector<float>> values = {{1, 0},  {1, .1f}, {0, 2},   {0, 1},
                                                  {-1, 1}, {1, 0},   {.2f, 1}, {1, 1}};
  const auto method = std::make_shared<WithTaps>(
      testing::Make(Ems(), "window=2,kernel=1,gamma=2,tau=0.6"),
      Taps({3, .8, 1.5, .6, .7, .4, .6, .4}, {.5f, .2f, .4f, .3f, .05f, .05f, .3f, .2f}, 2));
  Harness h(method, {.budget = 4});
  h.SetKeys([&](int, int, Position t) { return keys[static_cast<size_t>(t)]; });
  h.SetValues([&](int, int, Position t) { return values[static_cast<size_t>(t)]; });
  h.Prefill(8, [](const Cell&) { return 0.0; });
  EXPECT_EQ(h.Kept(), (std::vector<Position>{0, 1, 2, 3, 6, 7}));
  EXPECT_EQ(h.cache().n_rows(0, 0), 4);
  EXPECT_EQ(SharedRow(h, 0), SharedRow(h, 1));
  EXPECT_EQ(SharedRow(h, 2), SharedRow(h, 3));
  ExpectNear(RuntimeKey(h, 0), {1.988903, .112066});
  ExpectNear(RuntimeKey(h, 1), {1.014146, .057143}, 1e-3);
  ExpectNear(RuntimeKey(h, 2), {0, 1}, 1e-3);
  ExpectNear(RuntimeKey(h, 3), {0, 3});
  ExpectNear(RuntimeKey(h, 4), {.5, .1});
  ExpectNear(RuntimeKey(h, 5), {.3, .3});
  const auto value = [&](int64_t rank) {
    const std::vector<float> row = h.Value(rank);
    return std::vector<double>(row.begin(), row.end());
  };
  ExpectNear(value(1), {1, .028571});
  ExpectNear(value(3), {0, 1.571429});
  const std::span<const Half> factors = h.cache().factors(0, 0);
  EXPECT_EQ(float{factors[0]}, 2);
  EXPECT_NEAR(factors[1], std::hypot(1, .2f), 5e-4) << "a half";
  EXPECT_EQ(float{factors[2]}, ems::Factor(1)) << "1 marks rows that are keys";
  EXPECT_EQ(float{factors[4]}, 1);
}

TEST(EmsTest, APromptThatFitsIsLeftAlone) {
  Harness h(testing::Make(Ems(), "window=4"), {.budget = 10});
  h.SetKeys([](int, int, Position t) { return testing::RandomVector({t}, 2); });
  const Weights weights = [](const Cell& cell) { return testing::Random({cell.rank}); };
  h.Prefill(8, weights);
  EXPECT_TRUE(h.plans().empty());
  for (int step = 0; step < 2; ++step) {
    h.Decode(weights);
    EXPECT_TRUE(h.plans().empty());
  }
  EXPECT_TRUE(h.cache().keys_rotated(0)) << "as without compression, bit for bit";
  EXPECT_EQ(h.cache().n_slots(0, 0), 10);
  h.Decode(weights);
  EXPECT_EQ(h.plans().size(), 1u);
}

TEST(EmsTest, SmallestBudget) {
  EXPECT_EQ(testing::Make(Ems())->traits().min_budget, 2);
  Harness h(testing::Make(Ems(), "window=2,gamma=1,tau=2"), {.budget = 3});
  for (int step = 0; step < 30; ++step) {
    h.Decode([](const Cell& cell) { return testing::Random({cell.rank, cell.position}); });
    EXPECT_LE(h.cache().n_slots(0, 0), 3);
  }
  EXPECT_EQ(h.Kept().size(), 3u);
}

// A method under a budget that changes, as that of a conversation under a memory limit does.
class UnderBudget final : public Method {
 public:
  UnderBudget(MethodPtr method, int64_t first) : budget(first), method_(std::move(method)) {}
  const Traits& traits() const override { return method_->traits(); }
  Needs needs() const override { return method_->needs(); }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    LayerCall own = call.WithTaps(call.taps);
    own.budget = budget;
    method_->Decide(own, plans);
  }

  int64_t budget = 0;

 private:
  MethodPtr method_;
};

TEST(EmsTest, ASmallerBudgetIsReachedInOneCall) {
  const auto method =
      std::make_shared<UnderBudget>(testing::Make(Ems(), "window=4,gamma=2,tau=0.3"), 20);
  Harness h(method, {.budget = 20});
  h.SetKeys([](int, int, Position t) { return testing::RandomVector({t, 0}, 2); });
  h.SetValues([](int, int, Position t) { return testing::RandomVector({t, 1}, 2); });
  const Weights weights = [](const Cell& cell) {
    return testing::Random({cell.query, cell.position});
  };
  h.Prefill(80, weights);
  EXPECT_EQ(h.cache().n_rows(0, 0), 20);
  EXPECT_GT(h.cache().n_slots(0, 0), 20);
  method->budget = 7;
  h.Decode(weights);
  EXPECT_LE(h.cache().n_rows(0, 0), 7);
  EXPECT_LE(h.cache().n_slots(0, 0), 14);
}

// Rows are in no order of age once something was evicted.
TEST(EmsTest, OfEquallyImportantClassesTheOldestIsTaken) {
  std::vector<float> importance = {5, 2, 7, 2, 7, 3};
  std::vector<int32_t> oldest = {3, 5, 4, 1, 0, 2}, classes = {0, 1, 2, 3, 4, 5};
  ems::ClassTable table;
  table.importance = importance;
  table.oldest = oldest;
  table.classes = classes;
  ems::TakeLowest(table, 1);
  EXPECT_EQ(table.lowest, 3);  // rows 1 and 3 are the least
  EXPECT_EQ(table.classes.size(), 5u);
  // Rows 2 and 4 are the most important: the older one is closed.
  EXPECT_EQ(std::vector<int32_t>(table.open.begin(), table.open.end()),
            (std::vector<int32_t>{0, 1, 2, 5}));
}

TEST(EmsTest, Positions) {
  EXPECT_EQ(testing::Make(Ems())->traits().positions, PositionMode::kReassigned);
  EXPECT_EQ(testing::Make(Ems(), "positions=original")->traits().positions, PositionMode::kText);
  EXPECT_EQ(testing::Make(Ems(), "positions=baked")->traits().positions, PositionMode::kOriginal);
}

// --- a second implementation: keys and values of classes apart from the members ---

using Vec = std::vector<double>;

double Dot(const Vec& a, const Vec& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
double Cosine(const Vec& a, const Vec& b) {
  const double squares = Dot(a, a) * Dot(b, b);
  return squares == 0 ? 0 : Dot(a, b) / std::sqrt(squares);
}

struct PlainConfig {
  int64_t window = 4, kernel = 3, budget = 14, n_protect = 0;
  double gamma = 2, tau = 0.6;
  std::string similarity = "both";
  int64_t n_classes() const { return budget - window; }
  int64_t n_to_merge() const {
    return static_cast<int64_t>((gamma - 1) * static_cast<double>(budget));
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
  Vec key, value;         // own, while local
  std::optional<int> of;  // class
  double local() const { return past + current; }
};

// As the cache stores them.
double Rounded(double sum) { return Half(static_cast<float>(sum)); }

struct PlainHead {
  PlainConfig c;
  std::vector<PlainToken> tokens;  // members, then local ones
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
          t.norm = ems::Factor(t.norm);
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
      if (y >= 0 && best >= c.tau) {
        const double sum = weight[x] + weight[y];
        for (size_t i = 0; i < classes[y].direction.size(); ++i) {
          classes[y].direction[i] =
              (weight[x] * classes[x].direction[i] + weight[y] * classes[y].direction[i]) / sum;
          classes[y].value[i] =
              (weight[x] * classes[x].value[i] + weight[y] * classes[y].value[i]) / sum;
        }
        for (PlainToken& t : tokens) {
          if (t.of == x) t.of = y;
          if (t.of == y) t.norm = ems::Factor(t.norm);
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

class EmsRandomTest : public ::testing::Test {
 protected:
  static constexpr int kDim = 3;

  void Use(const PlainConfig& c, const std::string& more = "", int n_heads = 2) {
    const std::string parameters =
        "window=" + std::to_string(c.window) + ",kernel=" + std::to_string(c.kernel) +
        ",gamma=" + std::to_string(c.gamma) + ",tau=" + std::to_string(c.tau) +
        ",n_protect=" + std::to_string(c.n_protect) + ",similarity=" + c.similarity + more;
    config_ = c;
    harness_ = std::make_unique<Harness>(
        testing::Make(Ems(), parameters),
        testing::HarnessConfig{
            .n_q_heads = 2 * n_heads, .n_kv_heads = n_heads, .dim = kDim, .budget = c.budget});
    harness_->SetKeys([](int, int head, Position t) {
      return testing::RandomVector({head, t, 0}, kDim);
    });
    harness_->SetValues([](int, int head, Position t) {
      return testing::RandomVector({head, t, 1}, kDim);
    });
    plain_.assign(static_cast<size_t>(n_heads), {});
    for (PlainHead& plain : plain_) plain.c = c;
  }

  // Attention to an entry lasts a while.
  static double Weight(int q_head, int64_t query, Position entry) {
    const double heavy = testing::Random({q_head / 2, entry, 3, query / 16});
    return heavy * heavy * testing::Random({q_head, query, entry, 2});
  }

  void Run(Phase phase, int64_t n) {
    const int64_t n_before = harness_->n_seen();
    const Weights weights = [&](const Cell& cell) {
      return Weight(cell.q_head, n_before + cell.query, cell.position);
    };
    if (phase == Phase::kPrefill) {
      harness_->Prefill(n, weights);
    } else {
      harness_->Decode(weights);
    }
    for (int head = 0; head < static_cast<int>(plain_.size()); ++head) {
      RunPlain(head, phase, n_before, n);
      Compare(head);
    }
  }

  void RunPlain(int head, Phase phase, int64_t n_before, int64_t n) {
    PlainHead& plain = plain_[static_cast<size_t>(head)];
    const bool prompt = n > 1 && n_before == 0;
    for (int64_t t = n_before; t < n_before + n; ++t) {
      PlainToken token;
      token.position = static_cast<Position>(t);
      for (const float x : testing::RandomVector({head, t, 0}, kDim)) token.key.push_back(x);
      for (const float x : testing::RandomVector({head, t, 1}, kDim)) token.value.push_back(x);
      plain.tokens.push_back(token);
    }
    for (int64_t query = n_before; query < n_before + n; ++query) {
      for (PlainToken& t : plain.tokens) {
        if (t.position > query) continue;
        const double weight =
            (Weight(2 * head, query, t.position) + Weight(2 * head + 1, query, t.position)) / 2;
        t.global += phase == Phase::kDecode ? static_cast<float>(weight) : weight;
        if (prompt) {
          if (query >= n - config_.window) t.past += static_cast<float>(weight);
        } else {
          t.current += static_cast<float>(weight);
        }
      }
      if (!prompt && ++plain.counter == config_.window) {
        plain.counter = 0;
        for (PlainToken& t : plain.tokens) {
          t.past = Rounded(t.current);
          t.current = 0;
        }
      }
    }
    if (prompt) {
      plain.Prompt();
      for (PlainToken& t : plain.tokens) t.past = Rounded(t.past);
    } else {
      for (PlainToken& t : plain.tokens) t.current = Rounded(t.current);
      while (static_cast<int64_t>(plain.tokens.size()) - plain.n_members() > config_.window) {
        plain.Promote();
      }
    }
  }

  void Compare(int head) {
    const PlainHead& plain = plain_[static_cast<size_t>(head)];
    std::vector<Position> kept;
    for (const PlainToken& t : plain.tokens) kept.push_back(t.position);
    ASSERT_EQ(harness_->Kept(0, head), kept);
    ASSERT_EQ(harness_->cache().n_rows(0, head),
              static_cast<int64_t>(plain.classes.size() + plain.tokens.size()) - plain.n_members());
    ASSERT_LE(harness_->cache().n_rows(0, head), config_.budget);
    ASSERT_LE(static_cast<int64_t>(kept.size()),
              harness_->method().MaxSlots(config_.budget, 1 << 20));
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      const PlainToken& t = plain.tokens[rank];
      const Vec key = RuntimeKey(*harness_, static_cast<int64_t>(rank), 0, head);
      const std::vector<float> value = harness_->Value(static_cast<int64_t>(rank), 0, head);
      for (size_t i = 0; i < kDim; ++i) {
        const double expected_key = t.of ? t.norm * plain.classes.at(*t.of).direction[i] : t.key[i];
        const double expected_value = t.of ? plain.classes.at(*t.of).value[i] : t.value[i];
        ASSERT_NEAR(key[i], expected_key, 1e-5) << "rank " << rank;
        ASSERT_NEAR(value[i], expected_value, 1e-5) << "rank " << rank;
      }
    }
  }

  // That the numbers of the test make everything happen.
  void ExpectAllKinds() {
    for (const PlainHead& plain : plain_) {
      EXPECT_GT(plain.n_merged, 20);
      EXPECT_GT(plain.n_dropped, 20);
      EXPECT_GT(plain.n_left, 0);
    }
  }

  PlainConfig config_;
  std::unique_ptr<Harness> harness_;
  std::vector<PlainHead> plain_;
};

TEST_F(EmsRandomTest, PromptAndStepsAgreeWithPlainLoops) {
  Use({});
  Run(Phase::kPrefill, 60);
  for (int step = 0; step < 300 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
  ExpectAllKinds();
}

// More heads than take a step together.
TEST_F(EmsRandomTest, ManyHeads) {
  Use({}, "", 18);
  Run(Phase::kPrefill, 60);
  for (int step = 0; step < 40 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
}

TEST_F(EmsRandomTest, ProtectedClasses) {
  Use({.n_protect = 3, .tau = 0.3});
  Run(Phase::kPrefill, 60);
  for (int step = 0; step < 300 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
  ExpectAllKinds();
}

TEST_F(EmsRandomTest, SimilarityOfKeysOrValues) {
  for (const char* similarity : {"key", "value"}) {
    Use({.tau = 0.8, .similarity = similarity}, ",positions=baked");
    Run(Phase::kPrefill, 60);
    for (int step = 0; step < 200 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
    ExpectAllKinds();
  }
}

TEST_F(EmsRandomTest, EvictionOnly) {
  Use({.gamma = 1});
  Run(Phase::kPrefill, 60);
  for (int step = 0; step < 200 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
}

TEST_F(EmsRandomTest, StreamingFromTheFirstToken) {
  Use({});
  for (int step = 0; step < 300 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
}

TEST_F(EmsRandomTest, ChunksOfOneAreSteps) {
  Use({});
  for (int step = 0; step < 300 && !HasFatalFailure(); ++step) Run(Phase::kPrefill, 1);
}

// Shorter than the local window, ending inside it, on its edge, longer than two of it.
TEST_F(EmsRandomTest, ChunksOfAnySize) {
  Use({});
  Run(Phase::kPrefill, 7);
  for (const int64_t n : {3, 1, 4, 8, 5, 7, 12, 23, 2, 16, 40, 6, 9, 30}) {
    if (HasFatalFailure()) return;
    Run(Phase::kPrefill, n);
    Run(Phase::kDecode, 1);
  }
}

}  // namespace
}  // namespace winnow::compression::methods

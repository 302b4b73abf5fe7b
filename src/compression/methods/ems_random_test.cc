// EMS against plain loops, on random keys, values and weights.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compression/methods/ems_testing.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using ems::PlainConfig;
using ems::PlainHead;
using ems::PlainToken;
using ems::Rounded;
using ems::RuntimeKey;
using ems::Vec;
using testing::Cell;
using testing::Harness;
using testing::Weights;

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

  // Attention to an entry persists for 16 queries.
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

  // Checks that the test's numbers reach all cases.
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

// More heads than one Step takes (kHeadsTogether).
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

// With gamma = 1 nothing is merged (appendix B), as with a tau that no similarity reaches.
TEST_F(EmsRandomTest, EvictionOnly) {
  std::vector<std::vector<Position>> kept;  // [run]
  std::vector<std::vector<float>> values;
  for (const double tau : {0.1, 2.0}) {
    Use({.gamma = 1, .tau = tau});
    Run(Phase::kPrefill, 60);
    for (int step = 0; step < 200 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
    kept.push_back(harness_->Kept());
    std::vector<float>& of_run = values.emplace_back();
    for (int64_t rank = 0; rank < std::ssize(kept.back()); ++rank) {
      const std::vector<float> value = harness_->Value(rank);
      of_run.insert(of_run.end(), value.begin(), value.end());
    }
  }
  EXPECT_EQ(kept[0], kept[1]);
  EXPECT_EQ(values[0], values[1]);
}

TEST_F(EmsRandomTest, StreamingFromTheFirstToken) {
  Use({});
  for (int step = 0; step < 300 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
}

TEST_F(EmsRandomTest, ChunksOfOneAreSteps) {
  Use({});
  for (int step = 0; step < 300 && !HasFatalFailure(); ++step) Run(Phase::kPrefill, 1);
}

// Chunks shorter than the local window, ending inside it or at its end, and longer than two
// windows.
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

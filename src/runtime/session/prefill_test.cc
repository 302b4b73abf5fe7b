#include "runtime/session/prefill.h"

#include <limits>
#include <numeric>
#include <set>

#include "compression/forwarding_method.h"
#include "compression/registry.h"
#include "compression/testing/every_method.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

using model::testing::MakeTinySpec;
using testing::Logits;
using testing::Tokens;

class PrefillTest : public ::testing::Test {
 protected:
  PrefillTest()
      : engine_(testing::TinyEngine(Spec(), {.n_threads = 1, .target = "reference"})),
        step_(engine_->model()) {}

  // The context has room for replays; without a replay the newest entries stay in any case.
  static model::testing::TinySpec Spec() {
    model::testing::TinySpec spec = MakeTinySpec("llama");
    spec.context = 512;
    return spec;
  }

  std::unique_ptr<Session> Make(int64_t row_block, const std::string& method = {},
                                int64_t chunk = 0) const {
    SessionOptions options;
    options.row_block = row_block;
    options.compression.prefill_chunk = chunk;
    if (!method.empty()) {
      options.compression.method = compression::MakeMethod(method).value();
      if (options.compression.method->traits().budget.needed) options.compression.size = 24;
    }
    return Session::Make(*engine_, options).value();
  }
  std::unique_ptr<Session> Read(const std::vector<TokenId>& tokens, const std::string& method = {},
                                int64_t chunk = 0) const {
    auto session = Make(512, method, chunk);
    EXPECT_TRUE(session->Prefill(tokens).value());
    return session;
  }

  std::unique_ptr<Engine> engine_;
  model::Step step_;
};

// A replay takes positions beyond the text, but no room in the session's context. If the model has
// no positions left, the engine counts the tokens that were not replayed.
TEST(PrefillReplay, NeedsPositionsOfTheModelAlone) {
  model::testing::TinySpec spec = MakeTinySpec("llama");
  spec.context = 512;
  const auto read = [&](const EngineOptions& of_engine, int64_t context, int64_t* n_not_replayed) {
    const auto engine = testing::TinyEngine(spec, of_engine);
    SessionOptions options;
    options.context = context;
    options.compression.method = compression::MakeMethod("kvzip").value();
    options.compression.size = 12;
    const auto session = Session::Make(*engine, options).value();
    EXPECT_TRUE(session->Prefill(Tokens(50)).value());
    EXPECT_FALSE(session->CheckRoom(context - 49).has_value()) << "not room for more text";
    EXPECT_TRUE(session->Decode(3).has_value());
    *n_not_replayed = engine->n_not_replayed();
    return Logits(*session);
  };
  int64_t n_of_wide = 0, n_of_narrow = 0, n_of_spare = 0, n_of_full = 0;
  const auto wide = read({.n_threads = 1}, 400, &n_of_wide);
  EXPECT_EQ(read({.n_threads = 1}, 60, &n_of_narrow), wide);
  EXPECT_EQ(read({.n_threads = 1, .context = 60, .spare_context = 200}, 60, &n_of_spare), wide);
  EXPECT_NE(read({.n_threads = 1, .context = 60}, 60, &n_of_full), wide);
  EXPECT_EQ(n_of_wide + n_of_narrow + n_of_spare, 0);
  EXPECT_EQ(n_of_full, 50);
}

// A method may ask for chunks shorter than the minimum that room must allow (kMinChunk).
TEST(PrefillReplay, TakesShortChunks) {
  model::testing::TinySpec spec = MakeTinySpec("llama");
  spec.context = 512;
  const auto engine = testing::TinyEngine(spec, {.n_threads = 1});
  SessionOptions options;
  options.compression.method = compression::MakeMethod("kvzip:chunk=8").value();
  options.compression.size = 12;
  EXPECT_TRUE(Session::Make(*engine, options).value()->Prefill(Tokens(50)).value());
  EXPECT_EQ(engine->n_not_replayed(), 0);
}

// [layer * n_heads + kv_head] positions of the entries that a session keeps.
std::vector<std::set<cache::Position>> KeptBy(const Session& session) {
  const cache::Cache& cache = session.cache();
  std::vector<std::set<cache::Position>> kept;
  for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
    for (int head = 0; head < cache.config().shape.n_kv_heads; ++head) {
      std::set<cache::Position>& of_head = kept.emplace_back();
      for (const cache::Slot slot : cache.order(layer, head)) {
        of_head.insert(cache.positions(layer, head)[static_cast<size_t>(slot)]);
      }
    }
  }
  return kept;
}

// Number of newest tokens that every head still has.
int64_t CountKeptFromEnd(const Session& session) {
  int64_t n_all = session.n_tokens();
  for (const std::set<cache::Position>& kept : KeptBy(session)) {
    int64_t n = 0;
    while (kept.contains(static_cast<cache::Position>(session.n_tokens() - 1 - n))) ++n;
    n_all = std::min(n_all, n);
  }
  return n_all;
}

// A question about a prompt that was read is appended uncompressed, and nothing else is evicted:
// the answer needs both.
TEST_F(PrefillTest, AQuestionIsNotCompressed) {
  int n_methods = 0;
  for (const std::string& spec : compression::testing::MethodsAndVariants()) {
    SessionOptions options = {.compression = {.size = 24, .reserve_tokens = 0}};
    options.compression.method = compression::MakeMethod(spec).value();
    const compression::DecisionPolicy& decisions = options.compression.method->traits().decisions;
    if (!decisions.appends_short_prompts || decisions.evicts_in_decode) continue;
    ++n_methods;
    SCOPED_TRACE(spec);
    const auto session = Session::Make(*engine_, options).value();
    ASSERT_TRUE(session->Prefill(Tokens(60)).value());
    auto expected = KeptBy(*session);
    const double n_kept = session->kept(0);
    ASSERT_TRUE(session->Reserve(8, 4).has_value());  // the session asserts it
    ASSERT_TRUE(session->Prefill(Tokens(8)).value());
    for (const TokenId token : Tokens(4)) ASSERT_TRUE(session->Decode(token).has_value());
    for (auto& of_head : expected) {
      for (cache::Position position = 60; position < 72; ++position) of_head.insert(position);
    }
    EXPECT_EQ(KeptBy(*session), expected);
    EXPECT_EQ(session->kept(0), n_kept + 12);
    // Same as decoding the tokens one by one, but for the rounding in products of several rows.
    const auto stepwise = Session::Make(*engine_, options).value();
    ASSERT_TRUE(stepwise->Prefill(Tokens(60)).value());
    for (const TokenId token : Tokens(8)) ASSERT_TRUE(stepwise->Decode(token).has_value());
    for (const TokenId token : Tokens(4)) ASSERT_TRUE(stepwise->Decode(token).has_value());
    for (size_t i = 0; i < session->logits().size(); ++i) {
      EXPECT_NEAR(session->logits()[i], stepwise->logits()[i], 2e-3);
    }
    // Half of the budget was added: from here on prompts make room, but not by evicting their own
    // tokens.
    ASSERT_TRUE(session->Prefill(Tokens(12)).value());
    EXPECT_GE(CountKeptFromEnd(*session), 12);
    EXPECT_LE(session->kept(0) + session->kept(1) + session->kept(2), 3 * 24);
    ASSERT_TRUE(session->Prefill(Tokens(40)).value());
    EXPECT_GE(CountKeptFromEnd(*session), 12);
  }
  EXPECT_EQ(engine_->n_not_replayed(), 0);
  EXPECT_GE(n_methods, 3);
}

// A decision at the end runs in pieces: other steps can run in between, and it can be dropped.
TEST_F(PrefillTest, ADecisionAtTheEndComesInPieces) {
  for (const char* method : {"winnow", "winnow:rest=0,refit=false", "attention-matching"}) {
    SCOPED_TRACE(method);
    const auto expected = Read(Tokens(60), method);
    const std::vector<TokenId> tokens = Tokens(60);
    const auto session = Make(/*row_block=*/512, method);
    Prefill prefill(step_);
    const auto begin = [&] {
      const Prefill::Prompt prompt = {.session = session.get(), .tokens = tokens};
      prefill.Begin({&prompt, 1});
    };
    const auto count_pieces = [&](int most) {
      int n_pieces = 0;
      while (n_pieces < most && !prefill.Run({.n_blocks = 1}))
        n_pieces += prefill.decided() ? 1 : 0;
      return n_pieces + (prefill.active() || !prefill.decided() ? 0 : 1);
    };
    begin();
    const int n_pieces = count_pieces(1000);
    EXPECT_GT(n_pieces, 1);
    EXPECT_EQ(KeptBy(*session), KeptBy(*expected));
    ASSERT_TRUE(session->Decode(3).has_value());
    ASSERT_TRUE(expected->Decode(3).has_value());
    EXPECT_EQ(Logits(*session), Logits(*expected));
    for (const bool drops : {true, false}) {
      session->Reset();
      begin();
      EXPECT_EQ(count_pieces(1), 1);
      ASSERT_TRUE(prefill.active());
      drops ? prefill.Drop(0) : prefill.Abandon();
      EXPECT_FALSE(prefill.active());
      EXPECT_EQ(session->n_tokens(), 0);
      EXPECT_TRUE(session->logits().empty());
    }
    begin();
    EXPECT_EQ(count_pieces(1000), n_pieces);
    ASSERT_TRUE(session->Decode(3).has_value());
    EXPECT_EQ(Logits(*session), Logits(*expected));
  }
  EXPECT_EQ(engine_->n_not_replayed(), 0);
}

// KVzip that also asks for rows of its replay.
class RowCounter final : public compression::ForwardingMethod {
 public:
  RowCounter() : ForwardingMethod(compression::MakeMethod("kvzip:chunk=64").value()) {}
  compression::Needs needs() const override {
    compression::Needs needs = method_->needs();
    needs.replay.rows = {.which = attention::RowSpec::Which::kEven, .n = 16, .queries = true};
    return needs;
  }
  void ObserveReplay(const compression::LayerCall& call) const override {
    if (call.layer == 0) n_rows.push_back(static_cast<int>(call.rows->rows.size()));
    method_->ObserveReplay(call);
  }

  mutable std::vector<int> n_rows;  // of each pass
};

TEST(PrefillReplay, ChoosesRowsOfAllPassesTogether) {
  model::testing::TinySpec spec = MakeTinySpec("llama");
  spec.context = 1024;
  const auto engine = testing::TinyEngine(spec, {.n_threads = 1});
  const auto counter = std::make_shared<RowCounter>();
  SessionOptions options;
  options.compression.method = counter;
  options.compression.size = 12;
  EXPECT_TRUE(Session::Make(*engine, options).value()->Prefill(Tokens(400)).value());
  EXPECT_EQ(counter->n_rows.size(), 7U);
  EXPECT_NEAR(std::accumulate(counter->n_rows.begin(), counter->n_rows.end(), 0), 16, 4);
}

// A chunk that no prompt fills does not make the text unlimited.
TEST(PrefillChunk, TheLargestNumberIsOne) {
  const auto engine = testing::TinyEngine(MakeTinySpec("llama"), {.n_threads = 1});
  SessionOptions options;
  options.context = 64;
  options.compression.method = compression::MakeMethod("streaming").value();
  options.compression.size = 16;
  options.compression.prefill_chunk = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Session::Make(*engine, options).value()->capacity(), 64);
}

// Prompts of different lengths, methods and chunks, block by block, while others decode.
TEST_F(PrefillTest, TogetherTheyGetWhatTheyGetAlone) {
  const std::vector<std::string> methods = {"", "snapkv:window=8", "h2o", "pyramidinfer"};
  for (const int64_t chunk : {0, 20}) {
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<std::vector<TokenId>> prompts;
    std::vector<Prefill::Prompt> wanted;
    for (size_t i = 0; i < methods.size(); ++i) {
      const bool chunked = i == 1;  // the others are read at once
      sessions.push_back(Make(16, methods[i], chunked ? chunk : 0));
      prompts.push_back(Tokens(40 + 20 * static_cast<int>(i)));
    }
    for (size_t i = 0; i < methods.size(); ++i) {
      wanted.push_back({.session = sessions[i].get(), .tokens = prompts[i]});
    }
    const auto other = Read(Tokens(10)), other_alone = Read(Tokens(10));
    Prefill prefill(step_);
    prefill.Begin(wanted);
    double done = 0;
    for (TokenId token = 5; !prefill.Run({.n_blocks = 1}); ++token) {
      EXPECT_GE(prefill.done(), done);
      done = prefill.done();
      ASSERT_TRUE(other->Decode(token % 60).has_value());
      ASSERT_TRUE(other_alone->Decode(token % 60).has_value());
    }
    EXPECT_EQ(prefill.done(), 1);
    EXPECT_EQ(Logits(*other), Logits(*other_alone));
    for (size_t i = 0; i < methods.size(); ++i) {
      SCOPED_TRACE(methods[i]);
      ASSERT_FALSE(prefill.failure(i));
      const auto alone = Read(prompts[i], methods[i], i == 1 ? chunk : 0);
      EXPECT_EQ(Logits(*sessions[i]), Logits(*alone));
      EXPECT_EQ(sessions[i]->cache_bytes(), alone->cache_bytes());
    }
  }
}

TEST_F(PrefillTest, BlocksOfAnySizeGiveTheSame) {
  const auto alone = Read(Tokens(100));
  for (const int64_t n_rows : {1, 16, 17, 33, 90, 1000}) {
    const auto session = Make(128);
    const auto prompt = Tokens(100);
    const Prefill::Prompt wanted = {.session = session.get(), .tokens = prompt};
    Prefill prefill(step_);
    prefill.Begin({&wanted, 1});
    while (!prefill.Run({.n_blocks = 1, .n_rows = n_rows})) {
      EXPECT_LE(step_.last_block_rows(), std::max<int64_t>(n_rows, 31));
    }
    EXPECT_EQ(Logits(*session), Logits(*alone)) << n_rows;
  }
}

TEST_F(PrefillTest, OneThatIsRefusedOrDroppedLeavesTheOthersAlone) {
  for (int drop_after = 0; drop_after < 20; drop_after += 3) {
    const auto first = Make(8), second = Make(8, "h2o"), third = Make(8), fourth = Make(8);
    ASSERT_TRUE(third->Prefill(Tokens(9)).value());
    const std::vector<TokenId> prompt = Tokens(30), wrong = {1, testing::kVocabulary};
    const std::vector<Prefill::Prompt> wanted = {{.session = first.get(), .tokens = prompt},
                                                 {.session = second.get(), .tokens = prompt},
                                                 {.session = third.get(), .tokens = prompt},
                                                 {.session = fourth.get(), .tokens = wrong}};
    Prefill prefill(step_);
    prefill.Begin(wanted);
    ASSERT_TRUE(prefill.failure(3));
    EXPECT_EQ(prefill.failure(3)->message, "session: token 70 is outside the vocabulary of 70");
    for (int i = 0; i < drop_after; ++i) ASSERT_FALSE(prefill.Run({.n_blocks = 1}));
    prefill.Drop(1);
    prefill.Drop(2);
    EXPECT_EQ(second->n_tokens(), 0);
    EXPECT_EQ(third->n_tokens(), 9);
    EXPECT_EQ(third->cache_bytes(), Read(Tokens(9))->cache_bytes());
    // Dropped sessions can be used at once.
    ASSERT_TRUE(third->Decode(5).has_value());
    while (!prefill.Run({.n_blocks = 1})) {
    }
    EXPECT_EQ(Logits(*first), Logits(*Read(prompt)));
    EXPECT_EQ(third->n_tokens(), 10);
  }
}

// Logits are written prompt after prompt, a block of rows at a time.
TEST_F(PrefillTest, DroppedAmongTheLogitsItHasNone) {
  for (const bool abandons : {false, true}) {
    const auto first = Make(8), second = Make(8);
    ASSERT_TRUE(first->Prefill(Tokens(9)).value());
    const std::vector<TokenId> prompt = Tokens(30);
    const std::vector<Prefill::Prompt> wanted = {
        {.session = first.get(), .tokens = prompt},
        {.session = second.get(),
         .tokens = prompt,
         .on_logits = [](int64_t, std::span<const float>) {},
         .logits_from = 0}};
    Prefill prefill(step_);
    prefill.Begin(wanted);
    while (step_.done() < 1) ASSERT_FALSE(prefill.Run({.n_blocks = 1}));
    ASSERT_FALSE(prefill.Run({.n_blocks = 1}));
    abandons ? prefill.Abandon() : prefill.Drop(0);
    EXPECT_EQ(first->n_tokens(), 9);
    EXPECT_TRUE(first->logits().empty());
  }
}

TEST_F(PrefillTest, WithAllDroppedTheStepIsFree) {
  const auto session = Make(8);
  const auto prompt = Tokens(30);
  const Prefill::Prompt wanted = {.session = session.get(), .tokens = prompt};
  Prefill prefill(step_);
  prefill.Begin({&wanted, 1});
  ASSERT_FALSE(prefill.Run({.n_blocks = 2}));
  prefill.Drop(0);
  EXPECT_FALSE(prefill.active());
  EXPECT_FALSE(step_.active());
  EXPECT_EQ(session->cache_bytes(), 0);
  prefill.Begin({&wanted, 1});
  while (!prefill.Run()) {
  }
  EXPECT_EQ(Logits(*session), Logits(*Read(prompt)));
}

// With a prompt in parts, the parts that were read already are rolled back too.
TEST_F(PrefillTest, StoppedInALaterPartItIsAsBefore) {
  const auto session = Make(8, "", 10);
  ASSERT_TRUE(session->Prefill(Tokens(5)).value());
  Session::PrefillOptions options;
  options.progress = [](double done) { return done < 0.7; };
  EXPECT_FALSE(session->Prefill(Tokens(40), options).value());
  EXPECT_EQ(session->n_tokens(), 5);
  EXPECT_EQ(session->cache_bytes(), Read(Tokens(5))->cache_bytes());
}

}  // namespace
}  // namespace winnow::runtime

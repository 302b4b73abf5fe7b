// A method that exceeds the sizes it states is a bug: in a server it ends the request that meets
// it, in tests the process.
#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/scheduler_run.h"

namespace winnow::runtime {
namespace {

using testing::SchedulerTest;

struct Bugs {
  bool keeps_all_of_prompts = false;
  bool keeps_all_in_decode = false;
  bool states_too_little = false;
};

// H2O with bugs.
class Buggy final : public compression::Method {
 public:
  explicit Buggy(const Bugs& bugs) : bugs_(bugs) {}
  const compression::Traits& traits() const override { return right_->traits(); }
  compression::Needs needs() const override { return right_->needs(); }
  void Decide(const compression::LayerCall& call, compression::PlanList& plans) const override {
    const bool prefill = call.phase == compression::Phase::kPrefill;
    if (prefill ? bugs_.keeps_all_of_prompts : bugs_.keeps_all_in_decode) return;
    right_->Decide(call, plans);
  }
  int64_t MaxSlots(int64_t budget, int64_t n) const override {
    return right_->MaxSlots(Stated(budget), n);
  }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return right_->TotalSlots(Stated(budget), n, n_layers);
  }
  int64_t LayerSlots(int layer, int n_layers, int64_t budget, int64_t n) const override {
    return right_->LayerSlots(layer, n_layers, Stated(budget), n);
  }
  Sizes DecodeSizes(int64_t budget, int64_t n_prompt, int64_t n, int n_layers) const override {
    return right_->DecodeSizes(Stated(budget), n_prompt, n, n_layers);
  }

 private:
  int64_t Stated(int64_t budget) const { return bugs_.states_too_little ? budget / 8 : budget; }
  const Bugs& bugs_;
  compression::MethodPtr right_ = compression::MakeMethod("h2o").value();
};

class SchedulerInvariantsTest : public SchedulerTest {
 protected:
  SchedulerInvariantsTest() { Open(/*survives=*/true); }
  void Open(bool survives, int n_layers = 3) {
    model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
    spec.context = kContext;
    spec.n_layers = n_layers;
    engine_ = testing::TinyEngine(
        spec, {.n_threads = 1, .target = "reference", .survives_broken_invariants = survives});
  }
  SessionOptions WithBugs() {
    SessionOptions options;
    options.compression.method = std::make_shared<Buggy>(bugs_);
    options.compression.size = 64;
    return options;
  }
  std::shared_ptr<testing::Answer> Ask(int number, const std::optional<SessionOptions>& options) {
    Request request = MakeRequest(Prompt(120, number), 20);
    request.options = options;
    request.keep = false;
    return Submit(std::move(request));
  }
  // One request meets the bug; the requests beside and after it do not.
  void CheckOnlyOneFails(testing::Answer& buggy, testing::Answer& other) {
    ASSERT_TRUE(buggy.error);
    EXPECT_EQ(buggy.error->kind, ErrorKind::kInternal);
    EXPECT_NE(buggy.error->message.find("does not hold"), std::string::npos)
        << buggy.error->message;
    EXPECT_EQ(other.tokens(), Alone(Prompt(120, 2), 20));
    EXPECT_GE(scheduler_->state().n_broken_invariants, 1);
    EXPECT_EQ(scheduler_->state().n_failed, 1);
    EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
    bugs_ = {};
    const auto after = Ask(3, WithBugs());
    RunAll();
    EXPECT_EQ(after->tokens(), Alone(Prompt(120, 3), 20, Compressed("h2o", 64)));
  }
  Bugs bugs_;
};

TEST_F(SchedulerInvariantsTest, APromptThatKeepsTooMuchFailsAlone) {
  Make(Options());
  bugs_.keeps_all_of_prompts = true;
  const auto buggy = Ask(1, WithBugs()), other = Ask(2, {});
  RunAll();
  EXPECT_FALSE(buggy->started);
  CheckOnlyOneFails(*buggy, *other);
}

// Its session is gone while the prompts it was read with go on.
TEST_F(SchedulerInvariantsTest, APromptThatFailedCanBeCancelled) {
  bool was_open = true;
  for (int n_rounds = 1; was_open; ++n_rounds) {
    Make(Options());
    bugs_.keeps_all_of_prompts = true;
    const auto buggy = Ask(1, WithBugs());
    Ticket ticket = *ticket_;
    const auto other = Ask(2, {});
    for (int i = 0; i < n_rounds; ++i) scheduler_->Round();
    was_open = !buggy->done();
    ticket.Cancel();
    RunAll();
    EXPECT_TRUE(buggy->done());
    EXPECT_EQ(other->tokens(), Alone(Prompt(120, 2), 20));
    EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
  }
}

TEST_F(SchedulerInvariantsTest, AnAnswerThatKeepsTooMuchFailsAlone) {
  Make(Options());
  const auto buggy = Ask(1, WithBugs()), other = Ask(2, {});
  RunUntil([&] { return buggy->tokens().size() > 5; });
  bugs_.keeps_all_in_decode = true;
  RunAll();
  EXPECT_LT(buggy->tokens().size(), 10u);
  CheckOnlyOneFails(*buggy, *other);
}

// The request was admitted with fewer bytes than it takes.
TEST_F(SchedulerInvariantsTest, ASequenceBeyondItsReservationFailsAlone) {
  Make(Options());
  bugs_.states_too_little = true;
  const auto buggy = Ask(1, WithBugs()), other = Ask(2, {});
  bugs_.states_too_little = false;
  RunAll();
  CheckOnlyOneFails(*buggy, *other);
  EXPECT_NE(buggy->error->message.find("were reserved"), std::string::npos);
}

TEST_F(SchedulerInvariantsTest, APromptBeyondItsReservationFailsAlone) {
  Make(Options());
  SessionOptions buggy = WithBugs();
  buggy.compression.prefill_chunk = 8;  // what is kept of the first parts is too much
  bugs_.states_too_little = true;
  const auto reading = Ask(1, buggy), other = Ask(2, {});
  bugs_.states_too_little = false;
  RunAll();
  EXPECT_FALSE(reading->started);
  CheckOnlyOneFails(*reading, *other);
}

// An ended sequence that exceeds the limit is evicted.
TEST_F(SchedulerInvariantsTest, TheMemoryLimitHoldsAgain) {
  Open(/*survives=*/true, /*n_layers=*/24);  // what is kept exceeds the extra bytes of a prefill
  SchedulerOptions options = Options();
  options.max_running = 1;
  options.max_token_gap_ms = 10000;  // the prompt is read in one round
  const SessionOptions buggy = WithBugs();
  bugs_.states_too_little = true;
  const SequenceBytes stated =
      PlanSequence(*Session::Make(*engine_, buggy).value(), 120, 0).value();
  options.memory_limit_bytes = ModelBytes(*engine_) +
                               StepBufferBytes(*engine_, 1, options.defaults.row_block) +
                               stated.steady + stated.prefill;
  Make(options);
  Request request = MakeRequest(Prompt(120, 1), 0);
  request.options = buggy;
  const auto answer = Submit(std::move(request));
  bugs_.states_too_little = false;
  RunAll();
  EXPECT_EQ(answer->finish(), Finish::kLength);
  const SchedulerState state = scheduler_->state();
  EXPECT_EQ(state.n_broken_invariants, 1);
  EXPECT_EQ(state.n_idle_sessions, 0);
  EXPECT_LE(state.fixed_bytes + state.reserved_bytes, state.limit_bytes);
}

TEST_F(SchedulerInvariantsTest, TestsNotice) {
  Open(/*survives=*/false);
  for (const bool in_prompt : {true, false}) {
    Make(Options());
    bugs_ = {};
    Ask(1, WithBugs());
    (in_prompt ? bugs_.keeps_all_of_prompts : bugs_.keeps_all_in_decode) = true;
    EXPECT_DEATH(RunAll(), "winnow: bug: .* does not hold");
    scheduler_->Stop();
  }
}

}  // namespace
}  // namespace winnow::runtime

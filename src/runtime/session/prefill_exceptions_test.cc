// Whichever allocation is refused while prompts are read, their sessions can be continued and
// saved.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/testing/allocations.h"
#include "runtime/session/prefill.h"
#include "runtime/store/session_file.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

using testing::Logits;
using testing::Tokens;

class PrefillExceptionsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Read(const std::vector<TokenId>& text) const {
    auto session = Session::Make(*engine_, {}).value();
    EXPECT_TRUE(session->Prefill(text).value());
    return session;
  }
  // False: fewer than n allocations were made.
  bool ReadWithRefused(int64_t n, const std::vector<Prefill::Prompt>& prompts) {
    Prefill prefill(step_);
    winnow::testing::RefuseAllocation(n);
    try {
      prefill.Begin(prompts);
      while (!prefill.Run({.n_blocks = 1})) {
      }
    } catch (const std::bad_alloc&) {
    }
    const bool refused = winnow::testing::WasAllocationRefused();
    winnow::testing::RefuseAllocation(0);
    return refused;
  }
  void ExpectUsable(Session& session) const {
    ASSERT_TRUE(SaveSession(session, path_).has_value());
    const auto info = ReadSessionInfo(path_);
    ASSERT_TRUE(info.has_value()) << info.error().message;
    std::vector<TokenId> text(session.tokens().begin(), session.tokens().end());
    ASSERT_TRUE(session.Prefill(Tokens(4)).value());
    for (const TokenId token : Tokens(4)) text.push_back(token);
    EXPECT_EQ(Logits(session), Logits(*Read(text)));
  }

  std::string path_ = ::testing::TempDir() + "/prefill_exceptions.session";
  std::unique_ptr<Engine> engine_ = testing::TinyEngine(model::testing::MakeTinySpec("llama"),
                                                        {.n_threads = 1, .target = "reference"});
  model::Step step_{engine_->model()};
};

TEST_F(PrefillExceptionsTest, LeaveSessionsUsable) {
  if (!winnow::testing::kCountsAllocations)
    GTEST_SKIP() << "skipped: not this program's operator new";
  int64_t n = 1;
  for (bool refused = true; refused; ++n) {
    const auto first = Read(Tokens(20)), second = Read(Tokens(11));
    const std::vector<TokenId> more = Tokens(9), rest = Tokens(6);
    refused = ReadWithRefused(
        n, {{.session = first.get(), .tokens = more}, {.session = second.get(), .tokens = rest}});
    ExpectUsable(*first);
    ExpectUsable(*second);
    ASSERT_FALSE(HasFailure()) << "allocation " << n;
  }
  EXPECT_GT(n, 4);
  std::filesystem::remove(path_);
}

}  // namespace
}  // namespace winnow::runtime

// Work on one file, asked for while more is to come: nothing is mixed up and nothing lost.
#include <memory>

#include "runtime/testing/scheduler_files_run.h"

namespace winnow::runtime {
namespace {

class SchedulerFileOrderTest : public testing::SchedulerFilesTest {
 protected:
  // Of the tasks that are to come.
  void HoldDisk() { disk_ = std::make_unique<testing::SlowDisk>(); }
};

// The file changes between the request and the reading of it.
TEST_F(SchedulerFileOrderTest, ASessionAndItsDocumentAreOfOneFile) {
  const auto expected = AloneAfter(Prompt(20, 1), Prompt(9, 2), 6, {});
  MakeSlow();
  disk_->Free();
  Request document = MakeRequest(Prompt(60, 1), 0);
  document.n_document = 60;
  auto long_made =
      Begin([&](auto done) { scheduler_->CreateSession("long", std::move(document), done); });
  ASSERT_EQ(End(long_made), "");
  ASSERT_FALSE(End(BeginAnswer("long", 9, 6)).empty());  // its last token is not read
  auto short_made = BeginCreate("short", 20);
  ASSERT_EQ(End(short_made), "");
  auto saved = BeginSave("long", "file");
  ASSERT_EQ(End(saved), "");

  HoldDisk();
  saved = BeginSave("short", "file");
  auto restored = BeginRestore("a", "file");
  ASSERT_TRUE(disk_->WaitUntilAtWork());
  WaitForCommands();
  disk_->Free();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(End(restored), "");
  const auto kept = Kept("a");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens, Prompt(20, 1));
  EXPECT_EQ(kept->n_document, 0);
  EXPECT_EQ(End(BeginAnswer("a", 9, 6)), expected);

  // One that takes more than was reserved for it is not read.
  HoldDisk();
  saved = BeginSave("long", "file");
  restored = BeginRestore("b", "file");
  ASSERT_TRUE(disk_->WaitUntilAtWork());
  WaitForCommands();
  disk_->Free();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(End(restored), "session file: its file has changed; try again");
  EXPECT_FALSE(Kept("b"));
  restored = BeginRestore("b", "file");
  EXPECT_EQ(End(restored), "");
  const auto whole = Kept("b");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->n_document, 60);
}

}  // namespace
}  // namespace winnow::runtime

#include "chat_history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace winnow::apps {
namespace {

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() : folder_(testing::TempDir() + "winnow-history-test") {
    std::filesystem::remove_all(folder_);
  }
  ~HistoryTest() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/state/chat_history"; }

 private:
  std::string folder_;
};

TEST_F(HistoryTest, MessagesComeBackAsTheyWere) {
  const std::vector<std::string> messages = {"one", "two\nlines", "C:\\new \\\\ \\n", "\n", "é"};
  EXPECT_TRUE(ReadHistory(path())->empty());
  for (const std::string& message : messages) ASSERT_TRUE(AppendToHistory(path(), message));
  EXPECT_EQ(*ReadHistory(path()), messages);
}

TEST_F(HistoryTest, OnlyItsOwnerReadsIt) {
  ASSERT_TRUE(AppendToHistory(path(), "secret"));
  struct stat info = {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(HistoryTest, ALongFileIsCutToTheLastMessages) {
  ASSERT_TRUE(AppendToHistory(path(), "0"));
  std::ofstream more(path(), std::ios::app);
  for (int i = 1; i <= 2000; ++i) more << i << "\n";
  more.close();
  const auto messages = ReadHistory(path());
  ASSERT_EQ(messages->size(), 1000U);
  EXPECT_EQ(messages->front(), "1001");
  EXPECT_EQ(messages->back(), "2000");
  EXPECT_LT(std::filesystem::file_size(path()), 6000U);
}

TEST_F(HistoryTest, AFolderThatCannotBeIsAnError) {
  const auto added = AppendToHistory("/dev/null/history", "one");
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("/dev/null"), std::string::npos);
}

}  // namespace
}  // namespace winnow::apps

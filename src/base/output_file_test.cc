#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace winnow {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }

  static std::string Content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t NFiles() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  const fs::path folder_ = fs::path(testing::TempDir()) /
                           (std::string("winnow-output-") + std::to_string(getpid()) + "-" +
                            testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string path_ = (folder_ / "out.json").string();
};

TEST_F(OutputFileTest, AppearsAtTheEnd) {
  auto file = OutputFile::Create(path_);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->Write("a"));
  EXPECT_FALSE(fs::exists(path_));
  ASSERT_TRUE(file->Write(std::string_view("\0b", 2)));
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(Content(path_), std::string("a\0b", 3));
  EXPECT_EQ(NFiles(), 1u);
}

TEST_F(OutputFileTest, ATemporaryFileNamesItsTarget) {
  auto file = OutputFile::Create(path_);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(NFiles(), 1u);
  EXPECT_EQ(TargetOfTemporary(fs::directory_iterator(folder_)->path().filename().string()),
            "out.json");
  EXPECT_EQ(TargetOfTemporary(".a-1.2-3.4-5.tmp"), "a-1.2-3");
  for (const char* other :
       {"", ".tmp", "a.1-2.tmp", ".a.1-2", ".a.1-.tmp", ".a.-2.tmp", ".a1-2.tmp", ".a.1.2.tmp",
        ".1-2.tmp", ".a.1-2.tmp.tmp", ".a.x-2.tmp"}) {
    EXPECT_EQ(TargetOfTemporary(other), "") << other;
  }
}

// The limit on file sizes makes SIGXFSZ kill the process at a chosen byte.
TEST_F(OutputFileTest, KilledAtAnyByteTheOldOneStays) {
  const std::vector<std::string> pieces = {"head", std::string(100, 'x'), "", "tail"};
  const size_t n_bytes = 108;
  for (size_t n = 0; n <= n_bytes; ++n) {
    ASSERT_TRUE(WriteWholeFile(path_, "old"));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const rlimit limit = {n, n}, no_core = {0, 0};
      std::signal(SIGXFSZ, SIG_DFL);
      if (setrlimit(RLIMIT_CORE, &no_core) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
      auto file = OutputFile::Create(path_);
      bool good = file.has_value();
      for (const std::string& piece : pieces) good = good && file->Write(piece).has_value();
      _exit(good && file->CommitToDisk() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (n < n_bytes) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << n << ": " << status;
      EXPECT_EQ(Content(path_), "old") << n;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      EXPECT_EQ(Content(path_).size(), n_bytes);
    }
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
}

TEST_F(OutputFileTest, WithoutCommitTheOldOneStays) {
  ASSERT_TRUE(WriteWholeFile(path_, "old"));
  {
    auto file = OutputFile::Create(path_);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->Write("new"));
  }
  EXPECT_EQ(Content(path_), "old");
  EXPECT_EQ(NFiles(), 1u);
}

TEST_F(OutputFileTest, ReplacesAndKeepsTheMode) {
  ASSERT_TRUE(WriteWholeFile(path_, "old and longer"));
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  ASSERT_TRUE(WriteWholeFile(path_, "new"));
  EXPECT_EQ(Content(path_), "new");
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_F(OutputFileTest, LinksAreFollowed) {
  fs::create_directories(folder_ / "far");
  const fs::path link = folder_ / "link";
  fs::create_symlink("far/target", link);
  ASSERT_TRUE(WriteWholeFile(link.string(), "one"));  // the link's target does not exist yet
  ASSERT_TRUE(WriteWholeFile(link.string(), "two"));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(Content(folder_ / "far" / "target"), "two");
}

TEST_F(OutputFileTest, DevicesAreWrittenInPlace) {
  EXPECT_TRUE(WriteWholeFile("/dev/null", "gone"));
  EXPECT_TRUE(CheckWritable("/dev/null"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(OutputFileTest, AFullDiskIsAnError) {
  const auto written = WriteWholeFile("/dev/full", "text");
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("/dev/full: writing failed"), std::string::npos);
}

TEST_F(OutputFileTest, ChecksChangeNothing) {
  EXPECT_TRUE(CheckWritable(path_));
  EXPECT_EQ(NFiles(), 0u);
  ASSERT_TRUE(WriteWholeFile(path_, "old"));
  EXPECT_TRUE(CheckWritable(path_));
  EXPECT_EQ(Content(path_), "old");
}

TEST_F(OutputFileTest, SaysWhyItCannotBeWritten) {
  for (const std::string& path :
       {(folder_ / "no" / "such").string(), folder_.string(), std::string()}) {
    const auto checked = CheckWritable(path);
    ASSERT_FALSE(checked) << path;
    EXPECT_NE(checked.error().message.find(path), std::string::npos);
    EXPECT_FALSE(OutputFile::Create(path));
  }
  // Root can write to read-only files.
  if (geteuid() == 0) return;
  ASSERT_TRUE(WriteWholeFile(path_, "old"));
  ASSERT_EQ(chmod(path_.c_str(), 0400), 0);
  EXPECT_FALSE(CheckWritable(path_));
}

TEST_F(OutputFileTest, InAFolderNoLinkIsFollowed) {
  const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(folder, 0);
  ASSERT_TRUE(WriteWholeFile((folder_ / "outside").string(), "outside"));
  fs::create_symlink(folder_ / "outside", folder_ / "link");
  for (const std::string name : {"new", "link", "new"}) {
    auto file = OutputFile::CreateIn(folder, name);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    ASSERT_TRUE(file->Write("inside").has_value());
    ASSERT_TRUE(file->CommitToDisk().has_value());
    EXPECT_EQ(Content((folder_ / name).string()), "inside");
  }
  EXPECT_EQ(Content((folder_ / "outside").string()), "outside");
  {
    auto dropped = OutputFile::CreateIn(folder, "dropped");
    ASSERT_TRUE(dropped.has_value());
  }
  close(folder);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"link", "new", "outside"}));
}

}  // namespace
}  // namespace winnow

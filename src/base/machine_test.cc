#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace winnow {
namespace {

TEST(PeakMemory, RisesByWhatIsTouchedAndStays) {
  const int64_t before = PeakResidentBytes();
  EXPECT_GT(before, 1 << 20);
  constexpr int64_t kBytes = 64 << 20;
  { const std::vector<char> touched(kBytes, 1); }
  const int64_t after = PeakResidentBytes();
  EXPECT_GE(after - before, kBytes / 2);  // some of it may have been resident before
  EXPECT_GE(PeakResidentBytes(), after);
}

class AvailableMemory : public testing::Test {
 protected:
  AvailableMemory() : root_(testing::TempDir() + "winnow-machine-" + std::to_string(getpid())) {}
  ~AvailableMemory() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(AvailableMemory, IsWhatTheKernelSays) {
  EXPECT_EQ(AvailableMemoryBytes(root_), 0);
  Write("/proc/meminfo", "MemTotal:       2000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1000 * 1024);
  EXPECT_GT(AvailableMemoryBytes(), 1 << 20);
}

TEST_F(AvailableMemory, IsWhatTheTightestGroupLeaves) {
  Write("/proc/meminfo", "MemAvailable:    1000 kB\n");
  Write("/proc/self/cgroup", "1:cpu:/other\n0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "5000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1000 * 1024);
  Write("/sys/fs/cgroup/a/memory.max", "100000\n");
  Write("/sys/fs/cgroup/a/memory.current", "60000\n");
  Write("/sys/fs/cgroup/a/memory.stat", "anon 1\nactive_file 1000\ninactive_file 500\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 41500);
  Write("/sys/fs/cgroup/memory.max", "70000\n");  // a limit on the root, as a container sees it
  Write("/sys/fs/cgroup/memory.current", "80000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 0);
}

}  // namespace
}  // namespace winnow

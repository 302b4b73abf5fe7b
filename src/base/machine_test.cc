#include "base/machine.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace winnow

#include "server/http/work_slots.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

namespace winnow::server {
namespace {

using Size = WorkSlots::Size;

TEST(WorkSlotsTest, OthersWaitInTheirOrder) {
  WorkSlots slots(2, 2);
  std::vector<int> started;
  for (int i = 0; i < 4; ++i) slots.Run(Size::kSmall, [&started, i] { started.push_back(i); });
  EXPECT_EQ(started, (std::vector{0, 1}));
  slots.Done(Size::kSmall);
  EXPECT_EQ(started, (std::vector{0, 1, 2}));
  for (int i = 0; i < 3; ++i) slots.Done(Size::kSmall);
  EXPECT_EQ(started, (std::vector{0, 1, 2, 3}));
  slots.Run(Size::kSmall, [&started] { started.push_back(4); });
  EXPECT_EQ(started.size(), 5U);
}

TEST(WorkSlotsTest, SmallOnesDoNotWaitForLargeOnes) {
  WorkSlots slots(2, 1);
  std::vector<int> started;
  const auto run = [&](Size size, int i) {
    slots.Run(size, [&started, i] { started.push_back(i); });
  };
  run(Size::kLarge, 0);
  run(Size::kLarge, 1);
  run(Size::kSmall, 2);
  EXPECT_EQ(started, (std::vector{0, 2}));
  run(Size::kSmall, 3);
  slots.Done(Size::kSmall);
  EXPECT_EQ(started, (std::vector{0, 2, 3})) << "a large one is running";
  run(Size::kSmall, 4);
  slots.Done(Size::kLarge);
  EXPECT_EQ(started, (std::vector{0, 2, 3, 1})) << "it came first";
  slots.Done(Size::kSmall);
  EXPECT_EQ(started, (std::vector{0, 2, 3, 1, 4}));
}

TEST(WorkSlotsTest, WhatIsClearedNeverStarts) {
  WorkSlots slots(1, 1);
  int n = 0;
  for (const Size size : {Size::kSmall, Size::kSmall, Size::kLarge}) slots.Run(size, [&n] { ++n; });
  slots.Clear();
  slots.Done(Size::kSmall);
  slots.Run(Size::kSmall, [&n] { ++n; });
  EXPECT_EQ(n, 1);
}

TEST(WorkSlotsTest, WhatThrowsGivesItsPlaceBack) {
  WorkSlots slots(1, 1);
  int n = 0;
  EXPECT_THROW(slots.Run(Size::kLarge, [] { throw std::bad_alloc(); }), std::bad_alloc);
  slots.Run(Size::kLarge, [&n] { ++n; });
  EXPECT_EQ(n, 1);
  slots.Run(Size::kSmall, [] { throw std::bad_alloc(); });
  slots.Run(Size::kLarge, [&n] { ++n; });
  EXPECT_THROW(slots.Done(Size::kLarge), std::bad_alloc);
  EXPECT_EQ(n, 2) << "the one behind it has begun";
  slots.Done(Size::kLarge);
  slots.Run(Size::kLarge, [&n] { ++n; });
  EXPECT_EQ(n, 3);
}

}  // namespace
}  // namespace winnow::server

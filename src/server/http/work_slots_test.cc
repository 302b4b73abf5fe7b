#include "server/http/work_slots.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

namespace winnow::server {
namespace {

TEST(WorkSlotsTest, OthersWaitInTheirOrder) {
  WorkSlots slots(2);
  std::vector<int> started;
  for (int i = 0; i < 4; ++i) slots.Run([&started, i] { started.push_back(i); });
  EXPECT_EQ(started, (std::vector{0, 1}));
  slots.Done();
  EXPECT_EQ(started, (std::vector{0, 1, 2}));
  slots.Done();
  slots.Done();
  slots.Done();
  EXPECT_EQ(started, (std::vector{0, 1, 2, 3}));
  slots.Run([&started] { started.push_back(4); });
  EXPECT_EQ(started.size(), 5U);
}

TEST(WorkSlotsTest, WhatIsClearedNeverStarts) {
  WorkSlots slots(1);
  int n = 0;
  for (int i = 0; i < 3; ++i) slots.Run([&n] { ++n; });
  slots.Clear();
  slots.Done();
  slots.Run([&n] { ++n; });
  EXPECT_EQ(n, 1);
}

TEST(WorkSlotsTest, WhatThrowsGivesItsPlaceBack) {
  WorkSlots slots(1);
  int n = 0;
  EXPECT_THROW(slots.Run([] { throw std::bad_alloc(); }), std::bad_alloc);
  slots.Run([&n] { ++n; });
  EXPECT_EQ(n, 1);
  slots.Run([] { throw std::bad_alloc(); });
  slots.Run([&n] { ++n; });
  EXPECT_THROW(slots.Done(), std::bad_alloc);
  EXPECT_EQ(n, 2) << "the one behind it has begun";
  slots.Done();
  slots.Run([&n] { ++n; });
  EXPECT_EQ(n, 3);
}

}  // namespace
}  // namespace winnow::server

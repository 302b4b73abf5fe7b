#include "server/http/work_slots.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(n, 1);
}

}  // namespace
}  // namespace winnow::server

#include "base/thread_pool.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace winnow {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (int n_threads : {1, 2, 3, 8}) {
    ThreadPool pool(n_threads);
    for (int64_t n_items : {0, 1, 2, 7, 100, 1001}) {
      for (int64_t grain : {1, 3, 64}) {
        std::vector<std::atomic<int>> runs(static_cast<size_t>(n_items));
        pool.ParallelFor(
            n_items,
            [&](int64_t item, int thread) {
              ASSERT_GE(thread, 0);
              ASSERT_LT(thread, n_threads);
              runs[static_cast<size_t>(item)].fetch_add(1);
            },
            grain);
        for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, ManyShortLoopsSeeTheWritesOfTheLoopBefore) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 5000; ++round) {
    pool.ParallelFor(64, [&](int64_t item, int) {
      // Reads a neighbour written by (perhaps) another thread in the round before.
      const int64_t neighbour = (item + round) % 64;
      if (round % 2 == 0) {
        values[static_cast<size_t>(item)] += 1;
      } else {
        ASSERT_EQ(values[static_cast<size_t>(neighbour)], (round + 1) / 2);
      }
    });
  }
}

TEST(ThreadPool, DefaultIsAtLeastOne) { EXPECT_GE(ThreadPool::DefaultThreads(), 1); }

}  // namespace
}  // namespace winnow

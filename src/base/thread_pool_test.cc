#include "base/thread_pool.h"

#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "base/testing/allocations.h"
#include "gtest/gtest.h"

namespace winnow {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (int n_threads : {1, 2, 3, 8}) {
    ThreadPool pool(n_threads);
    for (int64_t n_items : {0, 1, 2, 7, 100, 1001}) {
      for (int64_t grain : {1, 3, 64}) {
        for (const auto schedule :
             {ThreadPool::Schedule::kDynamic, ThreadPool::Schedule::kStaticStealing}) {
          std::vector<std::atomic<int>> runs(static_cast<size_t>(n_items));
          pool.ParallelFor(
              n_items,
              [&](int64_t item, int thread) {
                ASSERT_GE(thread, 0);
                ASSERT_LT(thread, n_threads);
                runs[static_cast<size_t>(item)].fetch_add(1);
              },
              grain, schedule);
          for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
        }
      }
    }
  }
}

TEST(ThreadPool, ManyShortLoopsSeeTheWritesOfTheLoopBefore) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 5000; ++round) {
    pool.ParallelFor(64, [&](int64_t item, int) {
      // Reads a neighbour that another thread may have written in the previous round.
      const int64_t neighbour = (item + round) % 64;
      if (round % 2 == 0) {
        values[static_cast<size_t>(item)] += 1;
      } else {
        ASSERT_EQ(values[static_cast<size_t>(neighbour)], (round + 1) / 2);
      }
    });
  }
}

// `overlapped` waits until another thread has run an item, so the others must not wait for it.
TEST(ThreadPool, WorkBesideALoopKeepsNobodyWaiting) {
  for (const auto schedule :
       {ThreadPool::Schedule::kDynamic, ThreadPool::Schedule::kStaticStealing}) {
    ThreadPool pool(3);
    std::atomic<int> n_items{0};
    int n_inner = 0;
    pool.ParallelFor(
        100, [&](int64_t, int) { n_items.fetch_add(1); }, 1, schedule,
        [&] {
          const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
          while (n_items.load() == 0 && std::chrono::steady_clock::now() < until) {
            std::this_thread::yield();
          }
          EXPECT_GT(n_items.load(), 0) << "the others waited for the caller";
          // This loop runs on the calling thread alone, so n_inner needs no atomic.
          pool.ParallelFor(50, [&](int64_t, int thread) { n_inner += thread == 0 ? 1 : 100; });
        });
    EXPECT_EQ(n_items.load(), 100);
    EXPECT_EQ(n_inner, 50);
  }
}

TEST(ThreadPool, WorkBesideALoopIsDoneOnceHoweverShortTheLoopIs) {
  for (const int n_threads : {1, 2}) {
    ThreadPool pool(n_threads);
    for (const int64_t n_items : {0, 1, 2, 64}) {
      int n_done = 0;
      const auto nothing = [](int64_t, int) {};
      pool.ParallelFor(n_items, nothing, 1, ThreadPool::Schedule::kDynamic, [&] { ++n_done; });
      EXPECT_EQ(n_done, 1) << n_threads << " threads, " << n_items << " items";
    }
  }
}

TEST(ThreadPool, WorkBesideALoopMayThrow) {
  ThreadPool pool(2);
  const auto throws = [] { throw std::bad_alloc(); };
  const auto nothing = [](int64_t, int) {};
  EXPECT_THROW(pool.ParallelFor(64, nothing, 1, ThreadPool::Schedule::kDynamic, throws),
               std::bad_alloc);
  std::atomic<int> n_items{0};
  pool.ParallelFor(64, [&](int64_t, int) { n_items.fetch_add(1); });
  EXPECT_EQ(n_items.load(), 64);
}

// The first thread waits inside its first item until all threads are inside theirs.
TEST(ThreadPool, ThreadsBeginWithTheirOwnPart) {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> n_begun{0};
    std::array<int64_t, kThreads> first;
    first.fill(-1);
    pool.ParallelFor(
        20,  // ten runs of two
        [&](int64_t item, int thread) {
          int64_t& own = first[static_cast<size_t>(thread)];
          if (own >= 0) return;
          own = item;
          n_begun.fetch_add(1);
          while (n_begun.load() < kThreads) std::this_thread::yield();
        },
        2, ThreadPool::Schedule::kStaticStealing);
    ASSERT_EQ(first, (std::array<int64_t, kThreads>{0, 6, 12}));
  }
}

TEST(ThreadPool, ItemsOfEqualParts) {
  for (const int64_t n_parts : {1, 2, 3, 7}) {
    for (const int64_t n_items : {1, 2, 5, 7, 100}) {
      for (int64_t part = 0; part < n_parts; ++part) {
        for (int64_t item = n_items * part / n_parts; item < n_items * (part + 1) / n_parts;
             ++item) {
          EXPECT_EQ(ThreadPool::PartIndex(item, n_items, n_parts), part)
              << item << " of " << n_items << " in " << n_parts;
        }
      }
    }
  }
}

// When a thread is delayed, the others finish its part.
TEST(ThreadPool, PartsAreFinishedByWhoeverIsFree) {
  ThreadPool pool(2);
  std::atomic<int> n_done{0};
  pool.ParallelFor(
      10,
      [&](int64_t item, int) {
        if (item == 0) {
          while (n_done.load() < 9) std::this_thread::yield();
        }
        n_done.fetch_add(1);
      },
      1, ThreadPool::Schedule::kStaticStealing);
  EXPECT_EQ(n_done.load(), 10);
}

// An exception, such as bad_alloc, reaches the caller whichever thread it occurred on.
TEST(ThreadPool, WhatABodyThrowsReachesTheCaller) {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    for (const int64_t place : {0, 1, 57, 99}) {
      std::atomic<int> n_running{0};
      EXPECT_THROW(pool.ParallelFor(100,
                                    [&](int64_t item, int) {
                                      n_running.fetch_add(1);
                                      const bool throws = item == place;
                                      n_running.fetch_sub(1);
                                      if (throws) throw std::bad_alloc();
                                    }),
                   std::bad_alloc);
      EXPECT_EQ(n_running.load(), 0);
    }
    std::atomic<int> n_done{0};
    pool.ParallelFor(100, [&](int64_t, int) { n_done.fetch_add(1); });
    EXPECT_EQ(n_done.load(), 100);
  }
}

TEST(ThreadPool, WithoutMemoryForAllThreadsThereIsNone) {
  if (!winnow::testing::kCountsAllocations)
    GTEST_SKIP() << "skipped: not this program's operator new";
  int n_failed = 0;
  for (bool refused = true; refused;) {
    winnow::testing::RefuseAllocation(n_failed + 1);
    try {
      const ThreadPool pool(4);
    } catch (const std::bad_alloc&) {
      ++n_failed;
    }
    refused = winnow::testing::WasAllocationRefused();
    winnow::testing::RefuseAllocation(0);
  }
  EXPECT_GE(n_failed, 3) << "one for each thread";
}

TEST(ThreadPool, DefaultIsAtLeastOne) { EXPECT_GE(ThreadPool::DefaultThreads(), 1); }

}  // namespace
}  // namespace winnow

#include "cache/index/entry_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/rng.h"

namespace winnow::cache {
namespace {

// The same lists stored in full: 8 bytes per entry.
struct PlainList {
  std::vector<Position> positions;  // [slot]
  std::vector<Slot> order;          // [rank]

  void Append(std::span<const Position> added) {
    for (const Position position : added) {
      order.push_back(static_cast<Slot>(positions.size()));
      positions.push_back(position);
    }
  }
  void Evict(const std::vector<Slot>& slots) {
    Moves moves;
    moves.FillHoles(positions.size(), slots);
    std::vector<Slot> left;
    for (const Slot slot : order) {
      const Slot place = moves.place_of[static_cast<size_t>(slot)];
      if (place != kDropped) left.push_back(place);
    }
    order = left;
    moves.ApplyMoves(positions, left.size());
  }
};

// An EntryList and the plain list it must equal.
class Pair {
 public:
  void Append(Position first, int n, int gap = 0) {
    std::vector<Position> positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), first + gap);
    list_.Append(positions);
    plain_.Append(positions);
  }
  void Evict(const std::vector<Slot>& slots) {
    Moves expected;
    slots.size() == 1 ? expected.FillHole(list_.size(), slots[0])
                      : expected.FillHoles(list_.size(), slots);
    list_.Evict(slots, moves_, ranks_);
    EXPECT_EQ(moves_.from, expected.from);
    EXPECT_EQ(moves_.to, expected.to);
    plain_.Evict(slots);
  }
  void Verify() const {
    const size_t n = plain_.order.size();
    ASSERT_EQ(list_.size(), n);
    std::vector<int32_t> positions(n), order(n), ranks(n);
    list_.CopyPositionsTo(positions);
    list_.slots().CopyTo(order);
    list_.slots().CopyRanksTo(ranks);
    ASSERT_EQ(positions, plain_.positions);
    ASSERT_EQ(order, plain_.order);
    for (size_t rank = 0; rank < n; ++rank) {
      const Slot slot = order[rank];
      ASSERT_EQ(list_.slots()[rank], slot);
      ASSERT_EQ(ranks[static_cast<size_t>(slot)], static_cast<int32_t>(rank));
      ASSERT_EQ(list_.positions()[rank], positions[static_cast<size_t>(slot)]);
    }
    ASSERT_EQ(list_.oldest(-7), n == 0 ? -7 : list_.positions()[0]);
  }

  EntryList list_;
  PlainList plain_;
  Moves moves_;
  std::vector<int32_t> ranks_;
};

std::vector<Slot> Range(Slot first, Slot end) {
  std::vector<Slot> slots(static_cast<size_t>(end - first));
  std::iota(slots.begin(), slots.end(), first);
  return slots;
}

TEST(EntryList, TakesNoMemoryBeforeAnEviction) {
  Pair pair;
  pair.Append(0, 5000);
  pair.Append(5000, 1);
  pair.Verify();
  EXPECT_TRUE(pair.list_.slots_are_positions());
  EXPECT_EQ(pair.list_.allocated_bytes(), 0);
  // Nor after evicting the newest entries, or all.
  pair.Evict(Range(4000, 5001));
  pair.Evict({3999});
  pair.Verify();
  EXPECT_EQ(pair.list_.allocated_bytes(), 0);
  pair.Evict({17});
  pair.Verify();
  EXPECT_GT(pair.list_.allocated_bytes(), 0);
  pair.Evict(Range(0, 3998));
  pair.list_.ShrinkToFit();
  EXPECT_EQ(pair.list_.allocated_bytes(), 0);
  pair.Append(7, 3);  // a text that begins at another position
  pair.Verify();
  EXPECT_FALSE(pair.list_.slots_are_positions());
  EXPECT_EQ(pair.list_.allocated_bytes(), 0);
}

TEST(EntryList, TakesFourBytesAnEntryAfterOne) {
  Pair pair;
  pair.Append(0, 40000);
  std::vector<Slot> evicted;
  for (Slot slot = 0; slot < 40000; ++slot) {
    if (slot % 40 != 3) evicted.push_back(slot);
  }
  pair.Evict(evicted);
  pair.list_.ShrinkToFit();
  pair.Verify();
  EXPECT_EQ(pair.list_.allocated_bytes(), 1000 * 4 + 8);
  EXPECT_EQ(EntryList::MaxBytesPerEntry(40000), 4);
  // A list that keeps its size is allocated for at most a sixteenth more.
  for (Position position = 40000; position < 41000; ++position) {
    pair.Append(position, 1);
    pair.Evict({static_cast<Slot>(position * 7919 % 1001)});
  }
  pair.Verify();
  EXPECT_LE(pair.list_.allocated_bytes(), (1001 + 1001 / 16 + 1) * 4 + 16);
}

TEST(EntryList, HeadsOfMoreThan65536EntriesTakeSix) {
  Pair pair;
  constexpr int kEntries = 70000;
  pair.Append(0, kEntries);
  pair.Evict({5});
  pair.Verify();
  pair.list_.ShrinkToFit();
  EXPECT_LE(pair.list_.allocated_bytes(), (kEntries - 1) * 6 + 64);
  EXPECT_EQ(EntryList::MaxBytesPerEntry(kEntries), 6);
  pair.Evict(Range(100, 60000));
  pair.Verify();
  pair.list_.ShrinkToFit();
  EXPECT_LE(pair.list_.allocated_bytes(), (kEntries - 59901) * 4 + 64);
  pair.Append(kEntries, 60000);  // grows beyond it again
  pair.Verify();
  for (const Slot slot : {0, 65535, 65536, 70098 - 3}) pair.Evict({slot});
  pair.Verify();
}

TEST(EntryList, FindsWhatStandsFromAPositionOn) {
  Pair pair;
  pair.Append(0, 10);
  pair.Evict({2, 4});  // the entries of 8 and 9 move to slots 2 and 4
  std::vector<Slot> found = {99};
  pair.list_.FindFrom(7, found);
  EXPECT_EQ(found, (std::vector<Slot>{2, 4, 7}));
  pair.list_.FindFrom(10, found);
  EXPECT_TRUE(found.empty());
  pair.list_.FindFrom(-1, found);
  EXPECT_EQ(found, Range(0, 8));
}

// Random histories: chunks and single tokens, gaps, texts across multiples of 65536, one or many
// slots evicted in random order, the newest entries removed.
TEST(EntryList, AgreesWithThePlainList) {
  Rng rng(11);
  for (int history = 0; history < 200; ++history) {
    Pair pair;
    Position next = static_cast<Position>(rng.Below(3)) * 65500;
    for (int step = 0; step < 40; ++step) {
      const auto n = static_cast<int>(pair.list_.size());
      switch (rng.Below(6)) {
        case 0:
        case 1: {
          const int n_added = static_cast<int>(rng.Below(60));
          const int gap = rng.Below(4) == 0 ? static_cast<int>(rng.Below(40000)) : 0;
          pair.Append(next, n_added, gap);
          if (n_added > 0) next += n_added + gap;
          break;
        }
        case 2:
          pair.Append(next++, 1);
          break;
        case 3:
          if (n > 0) pair.Evict({static_cast<Slot>(rng.Below(n))});
          break;
        case 4: {
          std::vector<Slot> slots;
          const double share = rng.Uniform();
          for (Slot slot = 0; slot < n; ++slot) {
            if (rng.Uniform() >= share) continue;
            const size_t place = rng.Below(static_cast<int>(slots.size()) + 1);
            slots.insert(slots.begin() + static_cast<ptrdiff_t>(place), slot);
          }
          if (!slots.empty()) pair.Evict(slots);
          break;
        }
        case 5: {
          std::vector<Slot> slots;
          const Position from = next - static_cast<Position>(rng.Below(20));
          pair.list_.FindFrom(from, slots);
          if (!slots.empty()) pair.Evict(slots);
          next = std::min(next, from);
          break;
        }
      }
      pair.Verify();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace winnow::cache

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "compression/method.h"

// TreeKV on explicit lists, written from the paper and docs/methods/semantics.md#treekv without
// sharing code with the method.
namespace winnow::compression::methods::treekv {

// A call of the model: a chunk or turn, or one decode step.
struct Turn {
  int64_t n_new = 1;
  bool decode = false;
};

// One KV head: the tree of blocks and, in steps, that of entries.
class PlainTree {
 public:
  struct Config {
    int64_t budget = 0;
    int64_t block = 0;  // of the prompt; 0: prompts are read in steps (prefill=step)
    int64_t prompt_sinks = 0, sinks = 0, recent = 0;
    bool literal = false, select_left = false;
    std::string criterion = "mean";
  };
  explicit PlainTree(const Config& c) : c_(c) {}

  // `weight` of a query of the call for an entry at a rank.
  template <class Weight>
  void Run(const Turn& turn, const Weight& weight) {
    const int64_t n_old = std::ssize(entries_);
    const bool blocks = !turn.decode && c_.block > 0;
    const int64_t first_row = blocks ? std::max<int64_t>(0, turn.n_new - c_.block) : 0;
    for (int64_t i = 0; i < turn.n_new; ++i) entries_.push_back({.position = n_seen_++});
    for (int64_t rank = 0; rank < std::ssize(entries_); ++rank) {
      Entry& entry = entries_[static_cast<size_t>(rank)];
      double sum = 0, times_seen = 0, seen = 0, n_rows = 0;
      for (int64_t row = std::max(first_row, rank - n_old); row < turn.n_new; ++row) {
        const double one = weight(row, rank, entry.position);
        const auto n_visible = static_cast<double>(n_old + row + 1);
        sum += one;
        times_seen += n_visible * one;
        seen += n_visible;
        n_rows += 1;
      }
      // A chunk that is read as sums counts with the mean of what its queries saw (score.h).
      if (!blocks && n_rows > 0) times_seen = sum * seen / n_rows;
      entry.sum += c_.criterion == "position" ? times_seen : sum;
      entry.count += n_rows;
    }
    if (blocks && std::ssize(entries_) > c_.budget) EvictBlocks();
    while (!blocks && std::ssize(entries_) > c_.budget) EvictEntry();
  }

  std::vector<Position> Kept() const {
    std::vector<Position> kept;
    for (const Entry& entry : entries_) kept.push_back(static_cast<Position>(entry.position));
    return kept;
  }

 private:
  struct Entry {
    int64_t position = 0;
    double sum = 0;
    double count = 0;
    bool arrived = false;  // its block is, or was, in the list
  };

  double Attention(const Entry& entry) const {
    return c_.criterion == "accumulated" ? entry.sum : entry.sum / entry.count;
  }
  bool LeftStays(double left, double right) const { return c_.select_left || left > right; }
  int64_t Next(int64_t pointer, int64_t n) const { return (pointer + (c_.literal ? 2 : 1)) % n; }

  void EvictEntry() {
    const int64_t n_middle = c_.budget - c_.sinks - c_.recent;
    const auto left = entries_.begin() + c_.sinks + entry_pointer_;
    entries_.erase(LeftStays(Attention(*left), Attention(*(left + 1))) ? left + 1 : left);
    entry_pointer_ = Next(entry_pointer_, n_middle);
  }

  int64_t BlockIndex(const Entry& entry) const {
    return (entry.position - c_.prompt_sinks) / c_.block;
  }
  bool Sinks(const Entry& entry) const { return entry.position < c_.prompt_sinks; }
  double Score(int64_t block) const {
    double sum = 0, n = 0;
    for (int64_t rank = 0; rank < std::ssize(entries_) - c_.block; ++rank) {
      const Entry& entry = entries_[static_cast<size_t>(rank)];
      if (Sinks(entry) || BlockIndex(entry) != block) continue;
      sum += Attention(entry);
      n += 1;
    }
    return sum / n;
  }
  // Removes the entries of a block that have left the window.
  void Remove(int64_t block) {
    std::vector<Entry> rest;
    for (const Entry& entry : entries_) {
      if (Sinks(entry) || BlockIndex(entry) != block || !entry.arrived) rest.push_back(entry);
    }
    entries_ = rest;
    if (block == newest_block_) newest_is_gone_ = true;
  }
  void EvictAtPointer(std::vector<int64_t>& list) {
    size_t victim = 0;
    if (list.size() > 1) {
      const int64_t n_pairs = std::ssize(list) - 1;
      block_pointer_ %= n_pairs;
      const auto left = static_cast<size_t>(block_pointer_);
      victim = left + (LeftStays(Score(list[left]), Score(list[left + 1])) ? 1 : 0);
      block_pointer_ = Next(block_pointer_, n_pairs);
    }
    Remove(list[victim]);
    list.erase(list.begin() + static_cast<int64_t>(victim));
  }
  void EvictBlocks() {
    std::vector<int64_t> list, arriving;
    if (!newest_is_gone_) newest_block_ = -1;
    for (const Entry& entry : entries_) {
      if (!Sinks(entry) && entry.arrived && (list.empty() || list.back() != BlockIndex(entry))) {
        list.push_back(BlockIndex(entry));
      }
    }
    for (int64_t rank = 0; rank < std::ssize(entries_) - c_.block; ++rank) {
      Entry& entry = entries_[static_cast<size_t>(rank)];
      if (entry.arrived || Sinks(entry)) continue;
      entry.arrived = true;
      const bool joins = !list.empty() && list.back() == BlockIndex(entry);
      const bool late = BlockIndex(entry) == gone_before_;
      if (joins) newest_block_ = BlockIndex(entry);
      if (late || BlockIndex(entry) == newest_block_) continue;
      arriving.push_back(newest_block_ = BlockIndex(entry));
      newest_is_gone_ = false;
    }
    // Removes tokens that left the window after their block was dropped.
    if (gone_before_ >= 0) Remove(gone_before_);
    const int64_t n_blocks = (c_.budget - c_.prompt_sinks - c_.block) / c_.block;
    for (const int64_t block : arriving) {
      list.push_back(block);
      if (std::ssize(list) > n_blocks) EvictAtPointer(list);
    }
    while (std::ssize(entries_) > c_.budget) EvictAtPointer(list);
    gone_before_ = newest_is_gone_ ? newest_block_ : -1;
  }

  Config c_;
  std::vector<Entry> entries_;
  int64_t n_seen_ = 0;
  int64_t newest_block_ = -1;
  bool newest_is_gone_ = false;
  int64_t gone_before_ = -1;
  int64_t block_pointer_ = 0;
  int64_t entry_pointer_ = 0;
};

}  // namespace winnow::compression::methods::treekv

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace winnow::tokenizer {

// A part of a text that is being merged into tokens. Symbols form a list in text order; one that
// was merged into its left neighbour has length 0 and is no longer in the list.
struct Symbol {
  uint32_t begin = 0;   // offset in the text, bytes
  uint32_t length = 0;  // bytes
  int32_t previous = -1;
  int32_t next = -1;
  int32_t id = -1;  // id of the symbol, in the rule's numbering
};

struct Merge {
  uint32_t priority = 0;  // smaller is merged first
  int32_t id = -1;        // of the merged symbol
};

// Two neighbours that can be merged.
struct MergeCandidate {
  uint64_t order = 0;  // priority, then the left symbol's index: leftmost first among equals
  uint32_t right = 0;
  uint32_t length = 0;  // of both together when the candidate was added
  int32_t id = -1;

  uint32_t left() const { return static_cast<uint32_t>(order); }
};

// Converts scores to priorities: the highest score is merged first. Requires: `score` is not NaN.
inline uint32_t PriorityOfScore(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // + 0 makes -0 equal to 0
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

// Merges neighbours until `rule` allows no more merges: always the pair with the smallest priority,
// the leftmost among equals. symbols[0] stays the first of the list.
//   symbols  a list, each linked to the next one; merged in place
//   heap     scratch, so that many short texts do not allocate
//   rule     std::optional<Merge>(const Symbol& left, const Symbol& right)
//   merged   void(const MergeCandidate&), called before each merge
// Cost: O(n log n) for n symbols.
template <typename Rule, typename Merged>
void MergeSymbols(std::vector<Symbol>& symbols, std::vector<MergeCandidate>& heap, const Rule& rule,
                  const Merged& merged) {
  const auto later = [](const MergeCandidate& a, const MergeCandidate& b) {
    return a.order > b.order;
  };
  heap.clear();
  const auto note = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return false;
    const std::optional<Merge> merge = rule(symbols[left], symbols[right]);
    if (!merge) return false;
    heap.push_back(
        {.order = static_cast<uint64_t>(merge->priority) << 32 | static_cast<uint32_t>(left),
         .right = static_cast<uint32_t>(right),
         .length = symbols[left].length + symbols[right].length,
         .id = merge->id});
    return true;
  };
  for (size_t i = 1; i < symbols.size(); ++i) {
    note(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  }
  std::make_heap(heap.begin(), heap.end(), later);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const MergeCandidate best = heap.back();
    heap.pop_back();
    const auto left_place = static_cast<int32_t>(best.left());
    Symbol& left = symbols[best.left()];
    Symbol& right = symbols[best.right];
    // Symbols only grow or vanish, so the lengths tell whether the pair is unchanged since it was
    // added.
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length)
      continue;
    merged(best);
    left.length += right.length;
    left.id = best.id;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[left.next].previous = left_place;
    if (note(left.previous, left_place)) std::push_heap(heap.begin(), heap.end(), later);
    if (note(left_place, left.next)) std::push_heap(heap.begin(), heap.end(), later);
  }
}
template <typename Rule>
void MergeSymbols(std::vector<Symbol>& symbols, std::vector<MergeCandidate>& heap,
                  const Rule& rule) {
  MergeSymbols(symbols, heap, rule, [](const MergeCandidate&) {});
}

}  // namespace winnow::tokenizer

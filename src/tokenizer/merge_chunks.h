#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tokenizer/merge.h"

// Merges texts too long to be merged at once (a symbol takes 20 bytes, a candidate 24) in chunks,
// with bounded memory and the same result.
//
// Each chunk is merged alone, then every cut between two chunks is checked. Merging is greedy: the
// smallest candidate of the whole text is merged next. The merges of the whole text are therefore
// those of its chunks, interleaved, unless a candidate across a cut becomes the smallest while both
// its symbols exist. A symbol ends at a stage: the largest order that its chunk had merged by then.
// Until the symbol ends, its chunk has a candidate not above that stage, so a candidate across the
// cut that is above it has to wait. If this holds for all pairs of symbols that ever touched the
// cut, nothing is merged across it.
namespace winnow::tokenizer {

struct ChunkSize {
  size_t bytes = size_t{1} << 18;
  size_t margin = size_t{1} << 12;  // also merged beyond a chunk, so that its cut is not at an edge
};

// A symbol and the time during which it touched a cut. Stages are orders of merges: priority, then
// the left symbol's offset.
struct EdgeSymbol {
  static constexpr uint64_t kNever = ~uint64_t{0};
  Symbol symbol;
  uint64_t created = 0;
  uint64_t ended = kNever;
};
using Edge = std::vector<EdgeSymbol>;

// One merge of a chunk, in the order of merging; symbols are indices in the chunk's list.
struct MergeStep {
  uint64_t order = 0;
  int32_t left = 0;
  int32_t right = 0;
  uint32_t length = 0;  // of both
  int32_t id = -1;
};

inline uint64_t OrderAcross(const Merge& merge, const Symbol& left) {
  return static_cast<uint64_t>(merge.priority) << 32 | left.begin;
}

// Whether no merge can have crossed a cut, given all symbols that ended at the cut and all that
// began there.
template <typename Rule>
bool IsSeparate(const Edge& before, const Edge& after, const Rule& rule) {
  for (const EdgeSymbol& x : before) {
    for (const EdgeSymbol& y : after) {
      if (x.ended < y.created || y.ended < x.created) continue;  // never neighbours
      const std::optional<Merge> merge = rule(x.symbol, y.symbol);
      if (!merge) continue;
      const uint64_t order = OrderAcross(*merge, x.symbol);
      if (x.ended >= order && y.ended >= order) return false;
    }
  }
  return true;
}

// One merged chunk, and the symbols that touched its ends during merging.
class MergedChunk {
 public:
  // make(begin, end, symbols) appends the symbols of the text from `begin` on, up to the first that
  // reaches `end`, linked as a list.
  template <typename Make, typename Rule>
  void Run(size_t begin, size_t end, const Make& make, const Rule& rule) {
    symbols_.clear();
    steps_.clear();
    make(begin, end, symbols_);
    begin_ = begin;
    end_ = symbols_.back().begin + symbols_.back().length;
    MergeSymbols(symbols_, heap_, rule, [&](const MergeCandidate& merged) {
      const Symbol& left = symbols_[merged.left()];
      steps_.push_back({.order = (merged.order & ~uint64_t{0xFFFFFFFF}) | left.begin,
                        .left = static_cast<int32_t>(merged.left()),
                        .right = static_cast<int32_t>(merged.right),
                        .length = merged.length,
                        .id = merged.id});
    });
  }

  size_t end() const { return end_; }
  // The last offset up to `limit` where a symbol other than the first begins; 0 if there is none.
  size_t CutBefore(size_t limit) const {
    size_t cut = 0;
    for (int32_t i = symbols_[0].next; i >= 0 && symbols_[i].begin <= limit; i = symbols_[i].next) {
      cut = symbols_[i].begin;
    }
    return cut;
  }
  // Calls `use` for the symbols that begin before `cut`, in order.
  template <typename Use>
  void ForEachBefore(size_t cut, const Use& use) const {
    for (int32_t i = 0; i >= 0 && symbols_[i].begin < cut; i = symbols_[i].next) use(symbols_[i]);
  }

  // All symbols that stood at the beginning of the chunk.
  template <typename Make>
  Edge First(const Make& make) const {
    Edge edge = {{.symbol = Initial(begin_, make)}};
    ForEachStep([&](const MergeStep& step, uint64_t stage) {
      if (step.left != 0) return;
      edge.back().ended = stage;
      Symbol symbol = edge.back().symbol;
      symbol.length = step.length;
      symbol.id = step.id;
      edge.push_back({.symbol = symbol, .created = stage});
    });
    return edge;
  }
  // All symbols that ended at `cut`. Requires: nothing was merged across it.
  template <typename Make>
  Edge Last(size_t cut, const Make& make) const {
    const auto after = std::ranges::lower_bound(symbols_, cut, {}, &Symbol::begin);
    auto place = static_cast<int32_t>(after - symbols_.begin()) - 1;
    Edge edge = {{.symbol = Initial(symbols_[static_cast<size_t>(place)].begin, make)}};
    ForEachStep([&](const MergeStep& step, uint64_t stage) {
      if (step.right != place) return;
      place = step.left;
      edge.back().ended = stage;
      Symbol symbol = symbols_[static_cast<size_t>(place)];
      symbol.length = step.length;
      symbol.id = step.id;
      edge.push_back({.symbol = symbol, .created = stage});
    });
    return edge;
  }

 private:
  template <typename Make>
  static Symbol Initial(size_t begin, const Make& make) {
    std::vector<Symbol> one;
    make(begin, begin + 1, one);
    return one.front();
  }
  template <typename Use>
  void ForEachStep(const Use& use) const {
    uint64_t stage = 0;
    for (const MergeStep& step : steps_) {
      stage = std::max(stage, step.order);
      use(step, stage);
    }
  }

  std::vector<Symbol> symbols_;
  std::vector<MergeCandidate> heap_;
  std::vector<MergeStep> steps_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// Merges a text of n_bytes chunk by chunk. If a merge could cross the beginning of a chunk, the
// chunk is merged again together with the previous one.
//   make    as in MergedChunk::Run
//   rule    as in MergeSymbols; Symbol::begin is the offset in the whole text
//   emit    void(const Symbol&): appends its tokens to `out`
template <typename Make, typename Rule, typename Emit, typename Token>
void MergeInChunks(size_t n_bytes, const ChunkSize& chunk_size, const Make& make, const Rule& rule,
                   const Emit& emit, std::vector<Token>& out) {
  struct Start {
    size_t begin = 0;
    size_t n_out = 0;
    Edge before;      // the symbols that ended there
    size_t size = 0;  // largest size tried
  };
  const Start beginning = {.begin = 0, .n_out = out.size(), .before = {}, .size = n_bytes};
  Start here = beginning;
  std::optional<Start> previous;
  size_t size = chunk_size.bytes;
  MergedChunk chunk;
  while (here.begin < n_bytes) {
    const size_t end = std::min(n_bytes, here.begin + size + chunk_size.margin);
    chunk.Run(here.begin, end, make, rule);
    const bool last = chunk.end() >= n_bytes;
    const size_t cut = last ? n_bytes : chunk.CutBefore(here.begin + size);
    if (cut == 0) {  // the whole chunk is one symbol
      size *= 2;
      continue;
    }
    if (here.begin > 0 && !IsSeparate(here.before, chunk.First(make), rule)) {
      here = previous ? std::move(*previous) : beginning;
      size = std::max(2 * here.size, cut - here.begin);
      previous.reset();
      out.resize(here.n_out);
      continue;
    }
    chunk.ForEachBefore(cut, emit);
    if (last) return;
    Start next = {.begin = cut, .n_out = out.size(), .before = chunk.Last(cut, make)};
    here.size = size;
    previous = std::exchange(here, std::move(next));
    size = chunk_size.bytes;
  }
}

// Buffers of MergeText, so that many short texts do not allocate.
struct MergeScratch {
  std::vector<Symbol> symbols;
  std::vector<MergeCandidate> heap;
};

// Merges a text of n_bytes; short texts at once. Parameters as in MergeInChunks.
template <typename Make, typename Rule, typename Emit, typename Token>
void MergeText(size_t n_bytes, MergeScratch& scratch, const Make& make, const Rule& rule,
               const Emit& emit, std::vector<Token>& out) {
  const ChunkSize chunk;
  if (n_bytes > chunk.bytes + chunk.margin) {
    return MergeInChunks(n_bytes, chunk, make, rule, emit, out);
  }
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  make(0, n_bytes, symbols);
  MergeSymbols(symbols, scratch.heap, rule);
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    emit(symbols[static_cast<size_t>(i)]);
  }
}

}  // namespace winnow::tokenizer

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compression/method.h"
#include "compression/methods/winnow_reference.h"

// What winnow (winnow.cc) learns about a prompt before it decides.
namespace winnow::compression::methods {

// About one KV head.
struct HeadNotes {
  ReferenceRows window;  // the prompt's last rows; FillOwn runs when they are used
  ReferenceRows rows;    // the rows that count: the replay's or, without one, the window's
  bool max_covers_own_only = false;  // rows.max covers their own entries only, until IncludeInMax
  Targets targets;                   // attention over all entries, before any is evicted
  int64_t n_before = 0;              // number of entries then
};

// A KV head of the model, read from the cache.
struct LoadedHead {
  size_t index = 0;         // among the heads of all layers
  std::vector<Slot> slots;  // [rank]
  HeadEntriesOnHost entries;
  std::vector<std::vector<float>> projections;  // [query head of the group][model_dim, value_dim]
};

class Notes : public Memory {
 public:
  std::vector<HeadNotes> heads;            // [layer, kv_head], as are scores
  std::vector<std::vector<float>> scores;  // [rank]: largest weight that a row gave the entry

  // Index of the first head of the call's layer. Makes room for the heads of all layers.
  size_t First(const LayerCall& call) {
    const auto n_heads = static_cast<size_t>(call.n_kv_heads());
    heads.resize(static_cast<size_t>(call.n_layers) * n_heads);
    scores.resize(heads.size());
    return static_cast<size_t>(call.layer) * n_heads;
  }
};

// The notes of the call. Requires: call.memory is a Notes.
inline Notes& NotesIn(const LayerCall& call) { return static_cast<Notes&>(*call.memory); }

// Reads a KV head's entries from `first_rank` on, by rank, so that nothing depends on slots.
// bias_column: a half column; -1: none.
HeadEntriesOnHost ReadEntries(const LayerCall& call, int head, int bias_column,
                              int64_t first_rank = 0);

// Adds the call's rows from number `first` on to those of a KV head, without the parts that FillOwn
// computes. The newest n_own entries will be dropped. Returns for every added row how many entries
// it sees, its own included.
std::vector<int64_t> AddCallRows(const LayerCall& call, int head, int64_t first, int64_t n_own,
                                 ReferenceRows& rows);

// Adds the rows of a replay chunk to a layer's notes, and raises the scores to the largest weight
// that any row of the chunk gave (Method::ObserveReplay). Reads only the replay's own entries from
// the cache, because a long prompt has many chunks.
void TakeReplay(const LayerCall& call, int bias_column);
// A head's rows that count, with rows.max over all entries. Requires: head.entries holds all
// entries.
const ReferenceRows& CompleteRows(const kernels::Backend& backend, const LoadedHead& head,
                                  HeadNotes& notes);

// A range of the model's KV heads, [layer, kv_head].
struct HeadRange {
  size_t first = 0;
  size_t end = 0;

  bool any() const { return first < end; }
  size_t size() const { return end - first; }
  static HeadRange All(const LayerCall& call) {
    return {0, static_cast<size_t>(call.n_layers) * static_cast<size_t>(call.n_kv_heads())};
  }
  static HeadRange OfLayer(const LayerCall& call) {
    const auto n = static_cast<size_t>(call.n_kv_heads());
    const size_t first = static_cast<size_t>(call.layer) * n;
    return {first, first + n};
  }
};

// Makes the prompt's last rows the rows that count, and computes their targets. Returns the largest
// weight that one of them gave to each entry: [rank].
std::vector<float> TakeWindow(const kernels::Backend& backend, const LoadedHead& head,
                              HeadNotes& notes);

// W^T W of the output projections of a group's query heads, [value_dim, value_dim] each; the
// identity if no projection is known.
//   projections [group][model_dim, value_dim], or empty
std::vector<std::vector<float>> Grams(const kernels::Backend& backend, const ReferenceRows& rows,
                                      std::span<const std::vector<float>> projections);

// ForSomeHeads loads the first heads of a range, as many as take some tens of milliseconds, and
// calls work(head) for them on all threads. Returns the index of the first head that is left.
// ForAllHeads does this for the whole range.
enum class Projections { kNo, kYes };
size_t ForSomeHeads(const LayerCall& call, int bias_column, Projections projections,
                    const HeadRange& range,
                    const std::function<void(const LoadedHead& head)>& work);
void ForAllHeads(const LayerCall& call, int bias_column, Projections projections,
                 const HeadRange& range, const std::function<void(const LoadedHead& head)>& work);

}  // namespace winnow::compression::methods

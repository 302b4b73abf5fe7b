#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compression/method.h"
#include "compression/methods/winnow_reference.h"

// What winnow (winnow.cc) learns of a prompt before it decides.
namespace winnow::compression::methods {

// Of one KV head.
struct HeadNotes {
  ReferenceRows window;        // the prompt's last rows; FillOwn is done where they are needed
  ReferenceRows rows;          // those that count: of the replay, or, without one, the window
  bool max_is_of_own = false;  // of these (IncludeInMax)
  Targets targets;             // of all entries, before anything is evicted
  int64_t n_before = 0;        // entries then
};

// A KV head of the model, read from the cache.
struct LoadedHead {
  size_t index = 0;         // among those of all layers
  std::vector<Slot> slots;  // [rank]
  HeadEntriesOnHost entries;
  std::vector<std::vector<float>> projections;  // [query head of the group][model_dim, value_dim]
};

class Notes : public Memory {
 public:
  std::vector<HeadNotes> heads;            // [layer, kv_head], as the next
  std::vector<std::vector<float>> scores;  // [rank]: the largest weight a row gave to the entry

  // Those of the call's layer begin here.
  size_t First(const LayerCall& call) {
    const auto n_heads = static_cast<size_t>(call.n_kv_heads());
    heads.resize(static_cast<size_t>(call.n_layers) * n_heads);
    scores.resize(heads.size());
    return static_cast<size_t>(call.layer) * n_heads;
  }
};

// The notes of the call. Requires: they are its memory.
inline Notes& NotesIn(const LayerCall& call) { return static_cast<Notes&>(*call.memory); }

// Entries of a KV head by rank, from one on, so that nothing depends on slots. bias_column: of
// halves; -1: none.
HeadEntriesOnHost ReadEntries(const LayerCall& call, int head, int bias_column,
                              int64_t first_rank = 0);

// Adds the call's rows from number `first` on to those of a KV head, without what FillOwn adds to
// them. The newest n_own entries will be dropped. Returns what the rows see, theirs included.
std::vector<int64_t> AddCallRows(const LayerCall& call, int head, int64_t first, int64_t n_own,
                                 ReferenceRows& rows);

// Adds a replay's rows, and what they and all others of it gave to the entries, to the notes of a
// layer (Method::ObserveReplay). Reads the replay's own entries alone: a long prompt has many
// passes.
void TakeReplay(const LayerCall& call, int bias_column);
// The rows that count of a head whose entries are all there, and ready for them.
const ReferenceRows& CompleteRows(const kernels::Backend& backend, const LoadedHead& head,
                                  HeadNotes& notes);

// Some KV heads of the model, [layer, kv_head].
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

// The rows of a head that count become the prompt's last ones, with their targets. Returns the
// largest weight that one of them gave to each entry: [rank].
std::vector<float> TakeWindow(const kernels::Backend& backend, const LoadedHead& head,
                              HeadNotes& notes);

// W^T W of the query heads of a group, [value_dim, value_dim] each; the identity where no
// projection is known.
//   projections [group][model_dim, value_dim], or empty
std::vector<std::vector<float>> Grams(const kernels::Backend& backend, const ReferenceRows& rows,
                                      std::span<const std::vector<float>> projections);

// Calls work(head) for the first heads of a range, on all threads: as many as take some tens of
// milliseconds. Returns where the others begin.
enum class Projections { kNo, kYes };
size_t ForSomeHeads(const LayerCall& call, int bias_column, Projections projections,
                    const HeadRange& range,
                    const std::function<void(const LoadedHead& head)>& work);
void ForAllHeads(const LayerCall& call, int bias_column, Projections projections,
                 const HeadRange& range, const std::function<void(const LoadedHead& head)>& work);

}  // namespace winnow::compression::methods

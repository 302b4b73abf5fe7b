#pragma once

#include <cstdint>
#include <vector>

#include "compression/method.h"
#include "compression/methods/winnow_reference.h"

// What winnow (winnow.cc) learns of a prompt before it decides.
namespace winnow::compression::methods {

// Of one KV head.
struct HeadNotes {
  ReferenceRows rows;
  std::vector<float> scores;  // [rank]: the largest weight a reference row gave to the entry
  Targets targets;            // of all entries, before anything is evicted
  int64_t n_before = 0;       // entries then
};

class Notes final : public Memory {
 public:
  bool of_replay = false;
  std::vector<std::vector<HeadNotes>> layers;  // [layer][kv_head]

  std::vector<HeadNotes>& Of(const LayerCall& call) {
    layers.resize(static_cast<size_t>(call.n_layers));
    std::vector<HeadNotes>& heads = layers[static_cast<size_t>(call.layer)];
    heads.resize(static_cast<size_t>(call.n_kv_heads()));
    return heads;
  }
};

// The notes of the call at work. Requires: they are its memory.
inline Notes& NotesIn(const LayerCall& call) { return static_cast<Notes&>(*call.memory); }

// Entries of a KV head by rank, so that nothing depends on slots. bias_column: of halves; -1: none.
HeadEntriesOnHost ReadEntries(const LayerCall& call, int head, int bias_column);

// Adds the call's rows from number `first` on. Entries from rank first_own on will be dropped.
void Observe(const LayerCall& call, int head, int64_t first, int64_t first_own,
             const HeadEntriesOnHost& entries, HeadNotes& notes);

// The scores that the rows themselves give.
void TakeLargest(const HeadEntriesOnHost& entries, HeadNotes& notes);

// W^T W of the query heads of a group, [value_dim, value_dim] each; the identity where no
// projection is known.
std::vector<std::vector<float>> Grams(const LayerCall& call, int head);

}  // namespace winnow::compression::methods

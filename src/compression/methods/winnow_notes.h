#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "compression/method.h"
#include "compression/methods/winnow_reference.h"

// What winnow (winnow.cc) learns of a prompt before it decides.
namespace winnow::compression::methods {

// Of one KV head.
struct HeadNotes {
  ReferenceRows rows;
  std::vector<float> scores;         // [rank]: the largest weight a reference row gave to the entry
  std::vector<float> window_scores;  // the same of the prompt's last rows, where there is a replay
  Targets targets;                   // of all entries, before anything is evicted
  int64_t n_before = 0;              // entries then
};

// A KV head of the model, read from the cache.
struct LoadedHead {
  int layer = 0;
  int kv_head = 0;
  size_t index = 0;         // among those of all layers
  std::vector<Slot> slots;  // [rank]
  HeadEntriesOnHost entries;
  std::vector<std::vector<float>> projections;  // [query head of the group][model_dim, value_dim]
};

class Notes final : public Memory {
 public:
  bool of_replay = false;
  std::vector<std::vector<HeadNotes>> layers;  // [layer][kv_head]

  // Forgets the rows of the prompt; the scores they gave become `window_scores`.
  void BeginReplay() {
    of_replay = true;
    for (std::vector<HeadNotes>& heads : layers) {
      for (HeadNotes& head : heads) {
        head.rows = {};
        head.window_scores = std::exchange(head.scores, {});
      }
    }
  }
  std::vector<HeadNotes>& Of(const LayerCall& call) {
    layers.resize(static_cast<size_t>(call.n_layers));
    std::vector<HeadNotes>& heads = layers[static_cast<size_t>(call.layer)];
    heads.resize(static_cast<size_t>(call.n_kv_heads()));
    return heads;
  }
  HeadNotes& At(const LoadedHead& head) {
    return layers[static_cast<size_t>(head.layer)][static_cast<size_t>(head.kv_head)];
  }
};

// The notes of the call at work. Requires: they are its memory.
inline Notes& NotesIn(const LayerCall& call) { return static_cast<Notes&>(*call.memory); }

// Entries of a KV head by rank, so that nothing depends on slots. bias_column: of halves; -1: none.
HeadEntriesOnHost ReadEntries(const LayerCall& call, int head, int bias_column);
std::vector<HeadEntriesOnHost> ReadAllEntries(const LayerCall& call, int bias_column);

// Adds the call's rows from number `first` on to the notes of all KV heads. The newest n_own
// entries of every head will be dropped.
void Observe(const LayerCall& call, int64_t first, int64_t n_own,
             std::span<const HeadEntriesOnHost> entries, std::span<HeadNotes> notes);

// The scores that the rows themselves give.
void TakeLargest(const kernels::Backend& backend, const HeadEntriesOnHost& entries,
                 HeadNotes& notes);

// W^T W of the query heads of a group, [value_dim, value_dim] each; the identity where no
// projection is known.
//   projections [group][model_dim, value_dim], or empty
std::vector<std::vector<float>> Grams(const kernels::Backend& backend, const ReferenceRows& rows,
                                      std::span<const std::vector<float>> projections);

// Calls work(head) for the heads of all layers, some layers' at a time, on all threads.
enum class Projections { kNo, kYes };
void ForHeads(const LayerCall& call, int bias_column, Projections projections,
              const std::function<void(const LoadedHead& head)>& work);

}  // namespace winnow::compression::methods

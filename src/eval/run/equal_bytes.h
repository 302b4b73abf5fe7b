#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "eval/run/workload.h"
#include "runtime/session/session.h"
#include "runtime/session/undecided_prompt.h"

// Methods compared at equal bytes: the same number of entries takes different numbers of bytes
// under different methods.
namespace winnow::eval {

// A method with its budget, one of several that are compared.
struct Candidate {
  runtime::CompressionOptions compression = {};
  std::string budget = {};  // "ratio 0.25"; empty where all have the same, and for those without
  // Above 0: the budget is chosen for every prompt, so that the cache takes this share of the full
  // one's bytes. `compression` then has some size that the method accepts.
  double equal_bytes = 0;

  std::string Name() const;  // "snapkv:window=16 ratio 0.25"; "full" without a method
};

// The largest size (slots per KV head) under which a cache takes no more than some bytes, found by
// measuring a few, 12 at most. It stops within 1 % below them, or where one more entry in every KV
// head would not fit; the smallest size where that is more already.
class SizeSearch {
 public:
  struct Limits {
    int64_t smallest = 1;  // sizes that can be tried
    int64_t largest = 1;
    double bytes = 0;           // that are allowed
    double bytes_per_size = 0;  // of one more entry in every KV head
  };
  // Requires: 0 < smallest <= largest, bytes_per_size > 0.
  explicit SizeSearch(const Limits& limits);

  // The size to measure next; nothing: the search is over.
  std::optional<int64_t> next() const;
  // What the cache takes under that size, above 0.
  void Add(double bytes);
  int64_t found() const { return std::max(fits_, limits_.smallest); }

 private:
  int64_t Within(double size) const;

  Limits limits_;
  int64_t fits_ = 0;     // known to fit, or smallest - 1
  int64_t exceeds_ = 0;  // known to be too large, or largest + 1
  int64_t next_ = 0;
  int64_t last_size_ = 0;  // that was measured
  double last_bytes_ = 0;
  bool last_fits_ = false;
  int n_tried_ = 0;
  bool done_ = false;
};

// What a method learnt of the prompt that it read last, for its next budget: of methods for which
// that is the same for all budgets (runtime/session/undecided_prompt.h).
class LearntPrompt {
 public:
  // A session as if the prompt had been read under options.compression.size, which reads it only
  // where method, cache and prompt are not those of the last call. nullptr: stopped by keep_going.
  // Errors: those of the session.
  // Requires: UndecidedPrompt::IsPossible, a size below the number of tokens, the same engine and
  // row block each time.
  Result<std::unique_ptr<runtime::Session>> Compress(runtime::Engine& engine,
                                                     const runtime::SessionOptions& options,
                                                     std::span<const TokenId> prompt,
                                                     const std::function<bool()>& keep_going);

 private:
  bool Holds(const runtime::SessionOptions& options, std::span<const TokenId> prompt) const;

  runtime::SessionOptions options_;
  std::unique_ptr<runtime::UndecidedPrompt> prompt_;
};

// A method's options at equal bytes.
struct EqualBytes {
  runtime::SessionOptions options;
  // That holds the prompt under these options, with logits; nullptr where none was left.
  std::unique_ptr<runtime::Session> session = nullptr;
};

// `options` with the largest size under which the cache, with its lists, takes no more than `share`
// of what `prompt` takes in f16 uncompressed, right after the prompt. What reading it takes on the
// way is not limited. Found by a SizeSearch that reads the prompt for every size, or once where the
// method allows it, and with `learnt` once for several calls. nullopt: stopped by keep_going.
// Errors: those of the session. Requires: a method, 0 < share. on_plan and on_projections are not
// called.
Result<std::optional<EqualBytes>> AtEqualBytes(runtime::Engine& engine,
                                               const runtime::SessionOptions& options, double share,
                                               std::span<const TokenId> prompt,
                                               const std::function<bool()>& keep_going,
                                               LearntPrompt* learnt = nullptr);

// What a workload runs a prompt with: its options, at equal bytes where it asks for that.
Result<std::optional<runtime::SessionOptions>> OptionsFor(const RunContext& run_context,
                                                          std::span<const TokenId> prompt);
// A session with these, which may hold the prompt already. nullptr: stopped.
Result<std::unique_ptr<runtime::Session>> MakeSession(const RunContext& run_context,
                                                      std::span<const TokenId> prompt);
// One that does, with logits; that is `share` of the work. nullptr: stopped.
Result<std::unique_ptr<runtime::Session>> ReadPrompt(const RunContext& run_context,
                                                     std::span<const TokenId> prompt, double share);

// Whether a cache of this share of the full f16 cache's bytes is larger than was asked for.
inline bool Exceeds(double share, double equal_bytes) {
  constexpr double kTolerance = 1.005;
  return equal_bytes > 0 && share > kTolerance * equal_bytes;
}

}  // namespace winnow::eval

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

// Compares methods at equal bytes: the same number of entries takes different numbers of bytes
// under different methods.
namespace winnow::eval {

// One of several methods to compare, with its budget.
struct Candidate {
  runtime::CompressionOptions compression = {};
  std::string budget = {};  // "ratio 0.25"; empty if all candidates share it or this one has none
  // Above 0: the budget is chosen for every prompt, so that the cache takes this share of the full
  // cache's bytes. `compression` then has any size that the method accepts.
  double equal_bytes = 0;

  std::string Name() const;  // "snapkv:window=16 ratio 0.25"; "full" without a method
};

// Searches the largest size (slots per KV head) at which a cache takes at most `bytes`, by
// measuring at most 12 sizes. Stops within 1 % below the limit, or when one more entry in every KV
// head would exceed it. If even the smallest size takes more, the result is the smallest size.
class SizeSearch {
 public:
  struct Limits {
    int64_t smallest = 1;  // range of sizes to try
    int64_t largest = 1;
    double bytes = 0;           // the limit
    double bytes_per_size = 0;  // bytes of one more entry in every KV head
  };
  // Requires: 0 < smallest <= largest, bytes_per_size > 0.
  explicit SizeSearch(const Limits& limits);

  // The size to measure next; nullopt: the search is over.
  std::optional<int64_t> next() const;
  // Adds a measurement: the bytes, above 0, that the cache takes at size next().
  void Add(double bytes);
  int64_t found() const { return std::max(fits_, limits_.smallest); }

 private:
  int64_t Within(double size) const;

  Limits limits_;
  int64_t fits_ = 0;     // known to fit, or smallest - 1
  int64_t exceeds_ = 0;  // known to be too large, or largest + 1
  int64_t next_ = 0;
  int64_t last_size_ = 0;  // the last size measured
  double last_bytes_ = 0;
  bool last_fits_ = false;
  int n_tried_ = 0;
  bool done_ = false;
};

// The last prompt that a method read, with nothing evicted yet, so that it can be compressed to its
// next budget without reading it again. For methods whose reading does not depend on the budget
// (runtime/session/undecided_prompt.h).
class UndecidedPromptCache {
 public:
  // A session as if the prompt had been read with options.compression.size. Reads the prompt only
  // if method, cache or prompt differ from those of the last call. nullptr: stopped by keep_going.
  // Errors: those of the session. Requires: UndecidedPrompt::IsPossible, a size below the number of
  // tokens, the same engine and row block each time.
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
  // Holds the prompt under these options, with logits; nullptr if no trial used the final size.
  std::unique_ptr<runtime::Session> session = nullptr;
};

// `options` with the largest size at which the cache, with its lists, takes at most `share` of the
// bytes that `prompt` takes uncompressed in f16, measured right after the prompt. Peak memory while
// reading is not limited. A SizeSearch reads the prompt for every size, or only once if the method
// allows it; with `learnt`, once for several calls. nullopt: stopped by keep_going. Errors: those
// of the session. Requires: a method, 0 < share. on_plan and on_projections are not called.
Result<std::optional<EqualBytes>> AtEqualBytes(runtime::Engine& engine,
                                               const runtime::SessionOptions& options, double share,
                                               std::span<const TokenId> prompt,
                                               const std::function<bool()>& keep_going,
                                               UndecidedPromptCache* learnt = nullptr);

// The options with which a workload runs a prompt, at equal bytes if the context asks for that.
// nullopt: stopped.
Result<std::optional<runtime::SessionOptions>> OptionsFor(const RunContext& run_context,
                                                          std::span<const TokenId> prompt);
// A session with these options, which may already hold the prompt. nullptr: stopped.
Result<std::unique_ptr<runtime::Session>> MakeSession(const RunContext& run_context,
                                                      std::span<const TokenId> prompt);
// A session that holds the prompt, with logits. Reading counts as `share` of the work. nullptr:
// stopped.
Result<std::unique_ptr<runtime::Session>> ReadPrompt(const RunContext& run_context,
                                                     std::span<const TokenId> prompt, double share);

// Whether a cache that takes `share` of the full f16 cache's bytes is larger than requested.
inline bool Exceeds(double share, double equal_bytes) {
  constexpr double kTolerance = 1.005;
  return equal_bytes > 0 && share > kTolerance * equal_bytes;
}

}  // namespace winnow::eval

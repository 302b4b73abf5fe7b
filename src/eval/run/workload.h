#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "report/record.h"
#include "runtime/session/session.h"

namespace winnow::eval {

using tokenizer::TokenId;

struct Score {
  std::string name;
  double value = 0;
  double weight = 1;  // in means: the number of tokens if the value is a mean over tokens
  bool operator==(const Score&) const = default;
};

// The result of a sample under one method.
struct Outcome {
  bool stopped = false;  // by keep_going; the rest is then empty
  std::vector<Score> scores = {};
  // As runtime::Session counts them.
  int64_t cache_bytes = 0;
  int64_t cache_bytes_with_lists = 0;
  int64_t cache_bytes_full_f16 = 0;
  double kept = 0;  // entries per KV head, the mean over layers and heads
  std::optional<runtime::QualityFound> quality = {};
  report::Record details = {};  // answer, tokens, times: for readers, not averaged
};

class UndecidedPromptCache;

// The environment in which a workload runs.
struct RunContext {
  runtime::Engine& engine;
  const runtime::SessionOptions& options;       // the method under test
  const runtime::SessionOptions& full_options;  // the full cache to compare with
  std::function<bool(double done)> keep_going;  // share of the work; false stops. May be empty
  // Receives intermediate points of workloads that run for hours. May be empty.
  std::function<void(const report::Record& point)> on_point = {};
  double equal_bytes = 0;  // Variant::equal_bytes
  // Shared by the budgets of a method at equal bytes (equal_bytes.h). May be null.
  UndecidedPromptCache* learnt = nullptr;

  bool KeepGoing(double done) const { return !keep_going || keep_going(done); }
};

// The work on one sample: made once and run under every method, one at a time. It may keep data
// that all of them are compared with.
class Workload {
 public:
  virtual ~Workload() = default;
  // Covers everything that decides the outcome besides model and method: prompt, limits,
  // references.
  virtual uint64_t fingerprint() const = 0;
  // Whether the outcome also depends on the full cache (RunContext::full_options).
  virtual bool against_full() const { return false; }
  // Errors: those of the session (the method cannot hold this prompt under its budget).
  virtual Result<Outcome> Run(const RunContext& place) = 0;
};

// Hashes the parts of a fingerprint (FNV-1a, 64 bits). Texts and lists are hashed with their
// length, which separates them from what follows.
class Fingerprint {
 public:
  Fingerprint& Add(int64_t value);
  Fingerprint& Add(std::string_view text);
  Fingerprint& Add(std::span<const TokenId> tokens);
  Fingerprint& Add(std::span<const std::string> texts);
  uint64_t value() const { return hash_; }

 private:
  void AddBytes(const void* bytes, size_t n);
  uint64_t hash_ = 0xCBF29CE484222325u;
};

// Fills the cache_bytes fields, kept and quality from the current state of the session.
void MeasureCache(const runtime::Session& session, Outcome& outcome);

}  // namespace winnow::eval

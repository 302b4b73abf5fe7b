#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "compression/error_profile.h"
#include "gguf/file.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/step.h"
#include "runtime/invariants.h"
#include "tokenizer/tokenizer.h"

namespace winnow::runtime {

struct EngineOptions {
  std::string model_path = {};
  // The model file, if it is open already; model_path then only names it in errors.
  std::shared_ptr<const gguf::File> file = nullptr;
  int n_threads = 0;  // 0: all cores this process may use
  // CPU instruction set; empty: the best available; "reference": the plain loops.
  std::string target = {};
  int64_t context = 0;        // longest text position; 0: the trained context
  int64_t spare_context = 0;  // positions beyond it, up to the trained context, for replays
  bool check_tensors = false;
  // A sequence gets bit-identical results alone and beside any others; a step of one or a few
  // sequences takes longer (docs/reliability.md).
  bool deterministic = false;
  // The model's error profiles (compression/error_profile.h); empty: read from the file
  // ProfilePath(model_path), if it exists.
  std::string_view error_profiles = {};
  // true: a broken invariant ends only its request; false: the process (Invariants).
  bool survives_broken_invariants = false;
};

// Path of a model's error profiles: beside the model file.
std::string ProfilePath(const std::string& model_path);

// A loaded model with what it needs to compute: file, tokenizer, thread pool, backend. Sessions
// borrow it.
class Engine {
 public:
  // Errors: those of the parts, prefixed with the file's name.
  static Result<std::unique_ptr<Engine>> Open(const EngineOptions& options, Log& log);
  ~Engine();

  const gguf::File& file() const;
  const tokenizer::Tokenizer& tokenizer() const;
  const model::Model& model() const;
  // One set of buffers for all sessions, which use it in turn.
  model::Step& step();
  // Brackets a call of the public API that computes; code that it calls may compute with other
  // sessions, between steps. False: a scheduler has the step. Thread-safe.
  bool BeginCall();
  void EndCall();
  // A scheduler of the public API has the step to itself from claim to release. False: another
  // scheduler has it, or calls are running. Thread-safe.
  bool ClaimStep();
  void ReleaseStep();
  bool step_claimed() const;
  kernels::Backend& backend();
  ThreadPool& pool();
  double load_ms() const;
  // Read on first use. Errors: there are none, or they belong to another model.
  Result<const compression::ErrorProfiles*> error_profiles() const;
  // Prompt tokens that a method wanted to replay (compression::ReplaySpec) but for which the
  // context left no room: the method then decides on less information than it should.
  int64_t n_not_replayed() const;
  void CountNotReplayed(int64_t n_tokens);
  Invariants& invariants();
  // gguf::ContentHash of the file; computed once, on first use. Thread-safe.
  const std::string& model_hash() const;

 private:
  explicit Engine(bool survives);
  struct Data;
  std::unique_ptr<Data> data_;
};

// The warning about Engine::n_not_replayed.
std::string NotReplayedText(int64_t n_tokens);

}  // namespace winnow::runtime

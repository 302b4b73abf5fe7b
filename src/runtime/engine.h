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
  // The model, where it is open already; model_path then only names it in errors.
  std::shared_ptr<const gguf::File> file = nullptr;
  int n_threads = 0;  // 0: all cores this process may use
  std::string target =
      {};  // CPU instruction set; empty: the best there is; "reference": the plain loops
  int64_t context = 0;        // longest text position; 0: the trained context
  int64_t spare_context = 0;  // positions beyond it, as far as the model was trained: for a replay
  bool check_tensors = false;
  // What a sequence gets has the same bits alone and beside any others; a step of one or a few
  // sequences takes longer (docs/reliability.md).
  bool deterministic = false;
  // The model's error profiles (compression/error_profile.h); empty: they are in the file
  // ProfilePath(model_path), if there are any.
  std::string_view error_profiles = {};
  // Whether a broken invariant ends only the request that it is of, or the process (Invariants).
  bool survives_broken_invariants = false;
};

// Where a model's error profiles are looked for: beside it.
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
  // One set of buffers for all sessions, which take turns.
  model::Step& step();
  // A call of the public API that computes, from its beginning to its end: what it calls may
  // compute with other sessions, between steps. False: a scheduler has the step. Thread-safe.
  bool BeginCall();
  void EndCall();
  // A scheduler of the public API has the step to itself from its claim to the release. False:
  // another one has it, or there are calls. Thread-safe.
  bool ClaimStep();
  void ReleaseStep();
  bool step_claimed() const;
  kernels::Backend& backend();
  ThreadPool& pool();
  double load_ms() const;
  // Read when they are asked for first. Errors: there are none, or they are of another model.
  Result<const compression::ErrorProfiles*> error_profiles() const;
  // Tokens of prompts that a method wanted replayed (compression::ReplaySpec) and for which the
  // context left no room: a method then decides by less than it should.
  int64_t n_not_replayed() const;
  void CountNotReplayed(int64_t n_tokens);
  Invariants& invariants();
  // gguf::ContentHash of the file; computed once, when it is first asked for. Thread-safe.
  const std::string& model_hash() const;

 private:
  explicit Engine(bool survives);
  struct Data;
  std::unique_ptr<Data> data_;
};

// What is said of Engine::n_not_replayed.
std::string NotReplayedText(int64_t n_tokens);

}  // namespace winnow::runtime

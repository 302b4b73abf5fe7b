#pragma once

#include <cstdint>
#include <functional>

#include "base/log.h"
#include "runtime/engine.h"
#include "winnow/model.h"

namespace winnow::apps {

// Warns once, when a command is done with a model, of what made results wrong or worse, and says
// what helps: values too large for the caches' types; prompts that a method could not replay.
class ResultWarnings {
 public:
  ResultWarnings(const Model& model, Log& log);
  ResultWarnings(runtime::Engine& engine, Log& log);
  ~ResultWarnings();
  ResultWarnings(const ResultWarnings&) = delete;
  ResultWarnings& operator=(const ResultWarnings&) = delete;

 private:
  struct Counts {
    int64_t n_overflowed = 0;
    int64_t n_not_replayed = 0;
  };
  std::function<Counts()> count_;
  Log& log_;
};

}  // namespace winnow::apps

#pragma once

#include "base/log.h"
#include "runtime/engine.h"

namespace winnow::apps {

// When a command is done with an engine, whatever came of it: warns once of what made results wrong
// or worse than they could be, and says what helps: values that were too large for the caches'
// types, prompts that a method wanted to replay and could not.
class ResultWarnings {
 public:
  ResultWarnings(runtime::Engine& engine, Log& log) : engine_(engine), log_(log) {}
  ~ResultWarnings();
  ResultWarnings(const ResultWarnings&) = delete;
  ResultWarnings& operator=(const ResultWarnings&) = delete;

 private:
  runtime::Engine& engine_;
  Log& log_;
};

}  // namespace winnow::apps

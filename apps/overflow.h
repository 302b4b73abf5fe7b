#pragma once

#include "base/log.h"
#include "runtime/engine.h"

namespace winnow::apps {

// When a command is done with an engine, whatever came of it: warns once of the values that were
// too large for the caches' types, and says what holds them.
class OverflowWarning {
 public:
  OverflowWarning(runtime::Engine& engine, Log& log) : engine_(engine), log_(log) {}
  ~OverflowWarning();
  OverflowWarning(const OverflowWarning&) = delete;
  OverflowWarning& operator=(const OverflowWarning&) = delete;

 private:
  runtime::Engine& engine_;
  Log& log_;
};

}  // namespace winnow::apps

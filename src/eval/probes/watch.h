#pragma once

#include <functional>
#include <optional>
#include <span>

#include "base/result.h"
#include "compression/method.h"
#include "eval/probes/probe.h"

namespace winnow::eval {

// Runs a prompt with the full cache and the given taps. `look` is called for every layer, after its
// attention. Probes see what methods see, so this is a method that evicts nothing. False: stopped.
using Look = std::function<void(const compression::LayerCall& call)>;
Result<bool> WatchPrompt(const ProbeTask& task, std::span<const runtime::TokenId> prompt,
                         const kernels::TapSpec& taps, const Look& look,
                         const std::function<bool()>& keep_going);

// Runs all samples of the task, one after the other. False: stopped.
Result<bool> WatchSamples(const ProbeTask& task, const kernels::TapSpec& taps, const Look& look);

}  // namespace winnow::eval

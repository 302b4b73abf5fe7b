#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "base/with_code.h"
#include "runtime/engine.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/logits.h"
#include "runtime/generate/sampler.h"
#include "runtime/session/session.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

// Conversions from the public API's options and values to those of runtime.
namespace winnow::api {

// Errors: an unknown method, two methods that cannot be combined, a number out of range.
Result<runtime::SessionOptions> Convert(const SessionOptions& options);
runtime::SamplerConfig Convert(const Sampling& sampling);

using winnow::WithCode;

// Errors: top_probabilities or max_tokens out of range.
Result<void> CheckOptions(const GenerateOptions& options, int64_t vocabulary);
// Calls options.on_token, and records the token's log probability if it is asked for. False: stop.
bool ReportToken(const GenerateOptions& options, Token token, std::string_view text,
                 const runtime::Probabilities& probabilities, Generation& generation);

// Copies token counts and times.
void CopyTimings(const runtime::GenerateTimings& timings, Generation& generation);

// The error of `call` when `by` computes with the model (kBusy).
Error ModelInUse(std::string_view call, std::string_view by);
// Marks the engine as used by a session's call until the result is destroyed. Error: a scheduler
// has the model, or another session is in the middle of a step.
struct EndCall {
  void operator()(runtime::Engine* engine) const { engine->EndCall(); }
};
using RunningCall = std::unique_ptr<runtime::Engine, EndCall>;
Result<RunningCall> BeginCall(runtime::Engine& engine, std::string_view call);

// Tokenizes a prompt given as a string.
std::vector<Token> EncodePrompt(const runtime::Engine& engine, std::string_view prompt,
                                const GenerateOptions& options);

}  // namespace winnow::api

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

// The public API's options and values as those behind it.
namespace winnow::api {

// Errors: a method that is not known, or two that do not go together; a number out of range.
Result<runtime::SessionOptions> Convert(const SessionOptions& options);
runtime::SamplerConfig Convert(const Sampling& sampling);

using winnow::WithCode;

// Errors: a top_probabilities or max_tokens that is no number of tokens.
Result<void> CheckOptions(const GenerateOptions& options, int64_t vocabulary);
// Tells options.on_token of a token, and notes its probability where it is wanted. False: stop.
bool TellToken(const GenerateOptions& options, Token token, std::string_view text,
               const runtime::Probabilities& probabilities, Generation& generation);

// What it took.
void TakeTimings(const runtime::GenerateTimings& timings, Generation& generation);

// Says that something else computes with the model (kBusy).
Error ModelInUse(std::string_view call, std::string_view by);
// Of a call of a session that computes, to its end. Error: a scheduler does, or a session in the
// middle of a step.
struct EndCall {
  void operator()(runtime::Engine* engine) const { engine->EndCall(); }
};
using RunningCall = std::unique_ptr<runtime::Engine, EndCall>;
Result<RunningCall> BeginCall(runtime::Engine& engine, std::string_view call);

// The tokens of a prompt that is a string.
std::vector<Token> EncodePrompt(const runtime::Engine& engine, std::string_view prompt,
                                const GenerateOptions& options);

}  // namespace winnow::api

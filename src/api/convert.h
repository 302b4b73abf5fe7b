#pragma once

#include "base/result.h"
#include "runtime/sampler.h"
#include "runtime/session.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

// Options of the public API as those behind it.
namespace winnow::api {

// Errors: a method that is not known, or two that do not go together.
Result<runtime::SessionOptions> Convert(const SessionOptions& options);
runtime::SamplerConfig Convert(const Sampling& sampling);

}  // namespace winnow::api

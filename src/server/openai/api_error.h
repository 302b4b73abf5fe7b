#pragma once

#include <string>

#include "report/record.h"
#include "runtime/scheduler/scheduler_types.h"

namespace winnow::server {

// An error as a client sees it, in OpenAI's form.
struct ApiError {
  int status = 400;  // HTTP
  std::string message;
  std::string param = {};  // the field at fault; empty: null
  std::string code = {};   // "context_length_exceeded", ...; empty: null
};

// {"error": {"message", "type", "param", "code"}}; the type follows from the status.
report::Record ErrorRecord(const ApiError& error);

// kInvalid and kTooLarge are 400, kNotFound 404, kBusy 409, kQueueFull 429, kUnavailable 503,
// kInternal 500. `prompt_field`: the request's name for its prompt.
ApiError ErrorFrom(const runtime::RequestError& error, const std::string& prompt_field = "prompt");

}  // namespace winnow::server

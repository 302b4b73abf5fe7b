#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "chat/prompt_writer.h"
#include "server/openai/backend.h"
#include "server/openai/constraint_queue.h"
#include "server/openai/exchange.h"
#include "server/openai/metrics.h"
#include "server/openai/options.h"
#include "server/openai/prompts.h"

namespace winnow::server {

// Draws ids of answers and tool calls, and seeds. Thread-safe.
class IdSource {
 public:
  explicit IdSource(uint64_t seed) : rng_(seed) {}
  std::string Draw();   // 24 letters and digits
  uint64_t DrawSeed();  // below 2^53, which JSON numbers represent exactly

 private:
  std::mutex mutex_;
  Rng rng_;
};

// State that handlers share; one for the life of the server.
struct Context {
  const ServiceOptions& options;
  Backend& backend;
  const chat::PromptWriter& prompts;
  Metrics& metrics;
  IdSource& ids;
  ConstraintQueue& constraints;
};

// Send a handler's response and count its status.
void SendJson(Context& context, Exchange& exchange, const report::Value& body, int status = 200);
void SendError(Metrics& metrics, Exchange& exchange, const ApiError& error);

// The body as an object. Errors: not JSON, or not an object.
std::optional<report::Record> ReadBody(const HttpRequest& request, ApiError& error);

int64_t UnixTime();

}  // namespace winnow::server

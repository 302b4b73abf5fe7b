#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/scheduler/scheduler_types.h"
#include "server/openai/fields.h"
#include "server/openai/options.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

// The options that all kinds of completion share.
struct Generation {
  runtime::SamplerConfig sampler;
  int64_t max_tokens = -1;  // -1: the server's limit
  std::vector<std::string> stop;
  int n = 1;
  int n_probs = -1;  // -1: no log-probabilities
  bool ignore_eos = false;
  std::optional<std::string> session;
  int64_t id_slot = -1;  // -1: none
  int priority = 0;      // as in vLLM, smaller runs first
  std::optional<runtime::SessionOptions> options;
  bool reuse_prefix = true;
  bool reuse_across_questions = false;
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  bool timings_per_token = false;
};

// Which API's names the fields have.
enum class Dialect { kOpenAi, kNative };

// Reads them from a request. `random_seed` is used if neither the request nor the server sets a
// seed.
Generation ReadGeneration(Fields& fields, const ServiceOptions& options,
                          const tokenizer::Tokenizer& tokenizer, Dialect dialect,
                          uint64_t random_seed);

// The session that stands for a slot of llama-server.
std::string SlotSession(int64_t slot);

// The scheduler's request, without prompt and on_event, which the caller sets.
runtime::Request RequestFrom(const Generation& generation);

// "generation_settings" of llama-server's responses.
report::Record SettingsRecord(const Generation& generation);

}  // namespace winnow::server

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

// What every kind of completion can be asked for.
struct Generation {
  runtime::SamplerConfig sampler;
  int64_t max_tokens = -1;  // -1: as the server has it
  std::vector<std::string> stop;
  int n = 1;
  int n_probs = -1;  // -1: no log-probabilities
  bool ignore_eos = false;
  std::optional<std::string> session;
  int64_t id_slot = -1;  // -1: none is named
  int priority = 0;      // vLLM's: smaller first
  std::optional<runtime::SessionOptions> options;
  bool reuse_prefix = true;
  bool reuse_across_questions = false;
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  bool timings_per_token = false;
};

// Which names a path has for the same thing.
enum class Dialect { kOpenAi, kNative };

// Reads them from a request; `random_seed` is taken where neither request nor server names a seed.
Generation ReadGeneration(Fields& fields, const ServiceOptions& options,
                          const tokenizer::Tokenizer& tokenizer, Dialect dialect,
                          uint64_t random_seed);

// The session of a slot of llama-server's.
std::string SlotSession(int64_t slot);

// The scheduler's request of it; prompt and on_event are left to the caller.
runtime::Request RequestFrom(const Generation& generation);

// generation_settings of llama-server's answers.
report::Record SettingsRecord(const Generation& generation);

}  // namespace winnow::server

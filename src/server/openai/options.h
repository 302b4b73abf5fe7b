#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_format.h"
#include "report/record.h"
#include "runtime/scheduler/scheduler_types.h"
#include "winnow/compression.h"

namespace winnow::server {

// What an answer is restricted to, as a request says it.
struct ConstraintSpec {
  enum class Kind {
    kNone,
    kJsonSchema,  // `text`: a JSON schema; "{}" means any object
    kGrammar,     // `text`: GBNF, llama.cpp's notation
    kCalls,       // calls of `tools`
    kAutoCalls,   // text, and calls of `tools` where the model begins one
  };
  struct Tool {
    std::string name;
    std::string parameters;  // JSON schema
  };

  Kind kind = Kind::kNone;
  std::string text = {};
  std::vector<Tool> tools = {};
  chat::ToolFormat format = chat::ToolFormat::kNone;
  bool several_calls = false;        // false: exactly one; of kAutoCalls, at most one
  bool starts_in_reasoning = false;  // of kAutoCalls: chat::AnswerOptions
  std::string field = {};            // where it was asked for, for messages
};

// Makes what restricts an answer. Thread-safe.
class ConstraintFactory {
 public:
  virtual ~ConstraintFactory() = default;
  // Errors (of the client): an invalid schema or grammar, or one too large. May take seconds.
  virtual Result<std::unique_ptr<runtime::TokenConstraint>> Make(
      const ConstraintSpec& spec) const = 0;
};

// How a setting is written where the server is started ("--metrics"), for messages to clients.
struct ServiceOptionNames {
  std::string_view api_key = "api_keys {KEY}";
  std::string_view cors = "cors_origin ORIGIN";
  std::string_view metrics = "metrics true";
  std::string_view no_slots = "slots false";
  std::string_view priorities = "priorities true";
};

struct ServiceOptions {
  std::vector<std::string> api_keys = {};  // one of them is needed; empty: none is
  std::string cors_origin = {};            // pages of this origin may ask; "*": all; empty: none
  bool loopback = false;                   // it listens on a loopback address
  bool metrics = false;                    // GET /metrics
  bool slots = true;                       // GET /slots
  bool page = true;                        // GET /
  int n_slots = 1;                         // sequences that run at once at most
  bool priorities = false;                 // requests may name one
  runtime::SamplerConfig sampler = {};     // where a request names nothing (Service::SetReady)
  int64_t seed = -1;                       // the same; -1: another one for each request
  Compression kv = {.method = "full"};     // what the scheduler's defaults were made of
  runtime::SessionOptions session = {};    // the scheduler's defaults
  report::Record template_variables = {};  // of the chat template, where a request sets none
  bool cache_prompt = true;                // look for the beginnings of prompts in idle sessions
  std::string build = {};                  // of the program
  ServiceOptionNames words = {};
  uint64_t id_seed = 0;                                       // start of the ids that are drawn
  std::shared_ptr<const ConstraintFactory> constraints = {};  // null: none are built in
};

}  // namespace winnow::server

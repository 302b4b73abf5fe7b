#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_format.h"
#include "report/record.h"
#include "runtime/scheduler/scheduler_types.h"
#include "winnow/compression.h"

namespace winnow::server {

// A request's restriction of its answer.
struct ConstraintSpec {
  enum class Kind {
    kNone,
    kJsonSchema,  // `text`: a JSON schema; "{}" means any object
    kGrammar,     // `text`: GBNF, llama.cpp's notation
    kCalls,       // one or more calls of `tools`
    kAutoCalls,   // free text, and calls of `tools` if the model begins one
  };
  struct Tool {
    std::string name;
    std::string parameters;  // JSON schema

    bool operator==(const Tool&) const = default;
  };

  Kind kind = Kind::kNone;
  std::string text = {};
  std::vector<Tool> tools = {};
  chat::ToolFormat format = chat::ToolFormat::kNone;
  bool several_calls = false;        // false: exactly one, or at most one with kAutoCalls
  bool starts_in_reasoning = false;  // for kAutoCalls: chat::AnswerOptions
  std::string field = {};            // the field that asked for it, for error messages

  bool operator==(const ConstraintSpec&) const = default;
};

// Makes constraints. Thread-safe.
class ConstraintFactory {
 public:
  virtual ~ConstraintFactory() = default;
  // Errors (the client's): an invalid schema or grammar, or one too large. May take seconds: up to
  // 13 with a vocabulary of 128,000 tokens. Calls `cancelled` often, unless it is empty, and ends
  // early, with any error, once it returns true.
  virtual Result<std::unique_ptr<runtime::TokenConstraint>> Make(
      const ConstraintSpec& spec, const std::function<bool()>& cancelled) const = 0;
};

// Settings as written where the server is started ("--metrics"), for messages to clients.
struct ServiceOptionNames {
  std::string_view api_key = "api_keys {KEY}";
  std::string_view cors = "cors_origin ORIGIN";
  std::string_view metrics = "metrics true";
  std::string_view no_slots = "slots false";
  std::string_view priorities = "priorities true";
};

struct ServiceOptions {
  std::vector<std::string> api_keys = {};  // a request needs one of them; empty: no key is needed
  std::string cors_origin = {};            // whose pages may use the server; "*": all; empty: none
  bool loopback = false;                   // whether it listens on a loopback address
  bool metrics = false;                    // GET /metrics
  bool slots = true;                       // GET /slots
  bool page = true;                        // GET /
  int n_slots = 1;                         // maximum number of sequences that run at once
  bool priorities = false;                 // whether requests may set one
  runtime::SamplerConfig sampler = {};     // defaults of a request (Service::SetReady)
  int64_t seed = -1;                       // default of a request; -1: a random one each time
  Compression kv = {.method = "full"};     // the source of `session`
  runtime::SessionOptions session = {};    // the scheduler's defaults
  report::Record template_variables = {};  // of the chat template; a request can override them
  bool cache_prompt = true;                // reuse idle sessions that begin like the prompt
  std::string build = {};                  // of the program
  ServiceOptionNames words = {};
  uint64_t id_seed = 0;                                       // seed of the ids that are drawn
  std::shared_ptr<const ConstraintFactory> constraints = {};  // null: a build without grammars
};

}  // namespace winnow::server

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chat/tool_format.h"
#include "report/record.h"
#include "runtime/scheduler_types.h"

namespace winnow::server {

// How a cache is compressed, in the words of flags and requests.
struct KvSettings {
  std::string method = "full";  // "snapkv:window=16"
  std::string decode = {};      // another one for generated tokens; empty: none
  int64_t size = 0;             // entries per KV head; 0: not given
  double ratio = 0;             // of the prompt; 0: not given
  int64_t memory_bytes = 0;     // of the cache; 0: not given
  bool operator==(const KvSettings&) const = default;
};

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

struct ServiceOptions {
  std::vector<std::string> api_keys = {};  // one of them is needed; empty: none is
  std::string cors_origin = {};            // pages of this origin may ask; "*": all; empty: none
  bool loopback = false;                   // it listens on a loopback address
  bool metrics = false;                    // GET /metrics
  bool slots = true;                       // GET /slots
  bool page = true;                        // GET /
  int n_slots = 1;                         // sequences at work at most
  bool priorities = false;                 // requests may name one
  runtime::SamplerConfig sampler = {};     // where a request names nothing (Service::SetReady)
  int64_t seed = -1;                       // the same; -1: another one for each request
  KvSettings kv = {};                      // what the scheduler's defaults were made of
  runtime::SessionOptions session = {};    // the scheduler's defaults
  bool cache_prompt = true;                // look for the beginnings of prompts in idle sessions
  std::string build = {};                  // of the program
  uint64_t id_seed = 0;                    // start of the ids that are drawn
  std::shared_ptr<const ConstraintFactory> constraints = {};  // null: none are built in
};

}  // namespace winnow::server

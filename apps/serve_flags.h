#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/prompt_writer.h"
#include "flags.h"
#include "options.h"
#include "report/record.h"
#include "runtime/scheduler/scheduler_types.h"
#include "server/http/http_options.h"
#include "server/openai/options.h"

namespace winnow::apps {

struct ServeFlags {
  ModelFlags model;
  SamplerFlags sampler;
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::string alias;  // empty: the file's name
  int64_t n_parallel = 32;
  int64_t max_waiting = 256;
  std::optional<int64_t> memory_limit;  // 0: none; not given: from the machine's memory
  double max_token_gap_ms = 250;
  int64_t default_max_tokens = -1;
  bool priorities = false;
  std::optional<std::string> session_path;
  std::optional<bool> cache_prompt = {};  // not given: on, unless --deterministic
  std::vector<std::string> api_keys;
  std::optional<std::string> api_key_file;
  std::string cors_origin;
  bool metrics = false;
  bool slots = true;
  bool page = true;
  chat::WriterOptions writer;
  std::optional<std::string> template_file;
  report::Record template_variables;
  std::optional<std::string> ssl_key_file;
  std::optional<std::string> ssl_cert_file;
  int64_t timeout_s = 300;
  int n_http_threads = 2;
  int64_t http_buffers_bytes = int64_t{512} << 20;
  std::vector<std::string> notes;
};

// The value of an environment variable, or null.
using Environment = const char* (*)(const char* name);

FlagTable ServeTable(ServeFlags& flags);
// Names of the variables that set flags, for --help.
std::string VariableNames();
// Sets flags from the environment: LLAMA_ARG_* (llama-server's names) and WINNOW_ARG_*. The command
// line takes precedence: flags in `typed`, and flags that exclude these, stay as they are. Error:
// an invalid value, with the variable's name.
Result<void> ReadEnvironment(FlagTable& table, const FlagTable& typed, Environment environment);
// The variables ("NAME=VALUE", ended by null) whose names look as if they set a flag but do not.
std::vector<std::string> UnknownVariables(const char* const* variables);

// Errors (misuse): values that cannot be combined, a key file that cannot be read.
Result<server::ServiceOptions> ServiceOptionsFrom(const ServeFlags& flags);
Result<server::HttpOptions> HttpOptionsFrom(const ServeFlags& flags);
Result<runtime::SchedulerOptions> SchedulerOptionsFrom(const ServeFlags& flags);

}  // namespace winnow::apps

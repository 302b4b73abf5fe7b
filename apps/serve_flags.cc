#include "serve_flags.h"

#include <fstream>
#include <random>
#include <sstream>
#include <utility>
#include <variant>

#include "build.h"
#include "report/parse_json.h"
#include "template_flags.h"

namespace winnow::apps {
namespace {

constexpr int64_t kMaxPort = 65535;

void AddServerFlags(FlagTable& table, ServeFlags& flags) {
  table.Group("Server");
  table.Add({"--host"}, "ADDRESS", "address to listen on; 0.0.0.0: all", &flags.host);
  table.Add({"--port"}, "N", "port to listen on; 0: any that is free", &flags.port);
  table.Add({"-a", "--alias"}, "NAME", "the model's name for clients; empty: that of its file",
            &flags.alias);
  table.Add({{"--api-key"},
             "KEY[,KEY...]",
             "API key required for every request except /health, the page and OPTIONS; of several "
             "keys, any one; can be repeated",
             "",
             {},
             false,
             [&flags](std::string_view text) {
               std::istringstream keys{std::string(text)};
               const size_t n_before = flags.api_keys.size();
               for (std::string key; std::getline(keys, key, ',');) {
                 if (!key.empty()) flags.api_keys.push_back(key);
               }
               if (flags.api_keys.size() > n_before) return Result<void>();
               return Result<void>(
                   Error{"found no key, expected at least one (a variable that is not set?)"});
             }});
  table.Add({"--api-key-file"}, "FILE",
            "the same from a file, one key per line; lines that begin with # are comments",
            &flags.api_key_file);
  table.Add(
      {"--cors"}, "ORIGIN",
      "allow cross-origin requests from ORIGIN, such as https://chat.example.com; '*': from any "
      "origin; empty: from none",
      &flags.cors_origin);
  table.Add({"--ssl-key-file"}, "FILE", "TLS private key, PEM; needs --ssl-cert-file",
            &flags.ssl_key_file);
  table.Add({"--ssl-cert-file"}, "FILE", "TLS certificate chain, PEM; needs --ssl-key-file",
            &flags.ssl_cert_file);
  table.Add({"-to", "--timeout"}, "SECONDS",
            "close idle connections, and those of clients that read nothing, after this time",
            &flags.timeout_s);
  table.Add({"--threads-http"}, "N",
            "threads for requests with bodies; one more thread serves all others",
            &flags.n_http_threads);
  table.Add({{"--http-buffers"},
             "BYTES",
             "memory for requests being received and responses not yet read by clients, for all "
             "connections together; requests beyond it are rejected",
             "512M",
             {},
             false,
             [&flags](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(flags.http_buffers_bytes, ParseBytes(text));
               return {};
             }});
  table.Switch({"--metrics"}, "GET /metrics for Prometheus", &flags.metrics);
  table.Switch({"--no-slots"}, "no GET /slots", &flags.slots, false);
  table.Switch({"--slots"}, "GET /slots lists the running requests", &flags.slots);
  table.Switch({"--no-webui", "--no-ui"}, "no page at /", &flags.page, false);
  table.Switch({"--webui", "--ui"}, "the page at /", &flags.page);
}

void AddSchedulingFlags(FlagTable& table, ServeFlags& flags) {
  table.Group("Scheduling");
  table.Add(
      {"-np", "--parallel"}, "N",
      "maximum number of sequences that run at once; each has its own context of -c tokens and "
      "takes memory only as it grows",
      &flags.n_parallel);
  table.Add({"--max-waiting"}, "N", "maximum number of waiting requests; more are rejected (429)",
            &flags.max_waiting);
  table.Add({{"--memory-limit"},
             "BYTES",
             "memory limit for model, buffers and caches, such as 4G; a request starts when its "
             "bytes are free, and then always finishes. 0: unlimited",
             "nine tenths of available memory",
             {},
             false,
             [&flags](std::string_view text) -> Result<void> {
               if (text == "0") {
                 flags.memory_limit = 0;
                 return {};
               }
               WINNOW_ASSIGN(flags.memory_limit, ParseBytes(text));
               return {};
             }});
  table.Add(
      {"--max-token-gap"}, "MS",
      "target for the longest time between two tokens of an answer while another prompt is read",
      &flags.max_token_gap_ms);
  table.Add({{"--scheduling-policy"},
             "POLICY",
             "fcfs: requests are served in order of arrival; priority: those with a smaller "
             "'priority' first, so any client can keep others waiting",
             "fcfs",
             {},
             false,
             [&flags](std::string_view text) -> Result<void> {
               if (text != "fcfs" && text != "priority") {
                 return Error{"found '" + std::string(text) + "', expected fcfs or priority"};
               }
               flags.priorities = text == "priority";
               return {};
             }});
  table.Add({"-n", "--predict", "--n-predict", "--default-max-tokens"}, "N",
            "maximum tokens of an answer if the request sets none; -1: to the end of its context",
            &flags.default_max_tokens);
  table.Add(
      {"--session-path", "--slot-save-path"}, "DIR",
      "folder in which sessions are saved, on request and when the server shuts down. Without "
      "it they live in memory",
      &flags.session_path);
  const auto cache_prompt = [&](const char* name, const char* help, bool value) {
    table.Add({{name}, "", help, "", {}, false, [&flags, value](std::string_view) {
                 flags.cache_prompt = value;
                 return Result<void>();
               }});
  };
  cache_prompt("--no-cache-prompt",
               "do not reuse cached prompt prefixes (default with --deterministic)", false);
  cache_prompt("--cache-prompt", "reuse cached prompt prefixes", true);
}

// llama-server's flags that have no effect here, or are rejected.
void AddForeignServerFlags(FlagTable& table, ServeFlags& flags) {
  const auto satisfied = [&](FlagTable::Names names, const char* value = "") {
    table.Add({std::move(names), value, "", "", {}, true, [](std::string_view) {
                 return Result<void>();
               }});
  };
  const auto note = [&](FlagTable::Names names, const char* value, const std::string& text) {
    const std::string name = names.back();
    table.Add({std::move(names), value, "", "", {}, true, [&flags, name, text](std::string_view) {
                 flags.notes.push_back(name + " has no effect: " + text);
                 return Result<void>();
               }});
  };
  const auto refuse = [&](FlagTable::Names names, const char* value, const std::string& reason) {
    table.Add({std::move(names), value, "", "", {}, true, [reason](std::string_view) {
                 return Result<void>(Error{reason});
               }});
  };
  satisfied({"-cb", "--cont-batching"});
  satisfied({"-kvu", "--kv-unified"});
  note({"-nocb", "--no-cont-batching"}, "", "requests always share steps");
  note({"--props"}, "", "settings are made by flags, not by POST /props");
  note({"--cache-reuse"}, "N", "prefixes match only as a whole");
  note({"-cram", "--cache-ram"}, "N", "--memory-limit covers everything together");
  note({"-sps", "--slot-prompt-similarity"}, "N", "the longest common prefix decides");
  note({"--reasoning-format"}, "F", "reasoning is always returned separately");
  refuse({"--embedding", "--embeddings"}, "", "this server only generates text: no embeddings");
  refuse({"--rerank", "--reranking"}, "", "this server only generates text: no reranking");
  refuse({"--pooling"}, "TYPE", "this server only generates text: no embeddings");
}

// llama-server's -1 means automatic.
int64_t MaxSequences(const ServeFlags& flags) {
  return flags.n_parallel == -1 ? ServeFlags().n_parallel : flags.n_parallel;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{"--api-key-file: " + path + ": cannot be read"};
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty()) {
    return Error{"--api-key-file: " + path + ": found no key, expected one per line"};
  }
  return keys;
}

}  // namespace

FlagTable ServeTable(ServeFlags& flags) {
  FlagTable table("serve", "[-m FILE] [flags]",
                  "An OpenAI-compatible HTTP server, which also knows llama-server's paths and "
                  "flags. --kv-* set the size of each cache; a request starts when its bytes are "
                  "free. The web page shows which tokens are kept. SIGTERM and Ctrl-C finish the "
                  "running answers, a second one ends at once.");
  AddServerFlags(table, flags);
  AddSchedulingFlags(table, flags);
  table.Group("Chat");
  AddTemplateFlags(table, flags.writer, flags.template_file);
  table.Add({{"--chat-template-kwargs"},
             "JSON",
             "an object with variables of the template, such as {\"enable_thinking\": false}; a "
             "request's chat_template_kwargs come before",
             "",
             {},
             false,
             [&flags](std::string_view text) -> Result<void> {
               const auto value = report::ParseJson(text);
               const auto* object = value ? std::get_if<report::Record>(&value->data) : nullptr;
               if (object == nullptr) {
                 return Error{"found '" + std::string(text) + "', expected a JSON object"};
               }
               flags.template_variables = *object;
               return {};
             }});
  AddModelFlags(table, flags.model, "tokens of a sequence; 0: what the model was trained for");
  AddKvFlags(table, flags.model.kv, MethodFlag::kDefault);
  AddSamplerFlags(table, flags.sampler);
  AddLogFlags(table, flags.model);
  AddForeignServerFlags(table, flags);
  AddForeignFlags(table, flags.notes);
  table.Note(
      "Requests may choose method and budget (kv_method, kv_size, ...) and sampling themselves; "
      "flags are the defaults.");
  table.Note("The environment sets flags too, the command line wins: " + VariableNames() + ".");
  return table;
}

Result<server::ServiceOptions> ServiceOptionsFrom(const ServeFlags& flags) {
  server::ServiceOptions options;
  options.api_keys = flags.api_keys;
  if (flags.api_key_file) {
    WINNOW_ASSIGN(const auto keys, ReadKeys(*flags.api_key_file));
    options.api_keys.insert(options.api_keys.end(), keys.begin(), keys.end());
  }
  options.cors_origin = flags.cors_origin;
  options.loopback = IsLoopback(flags.host);
  options.metrics = flags.metrics;
  options.slots = flags.slots;
  options.page = flags.page;
  options.n_slots = static_cast<int>(MaxSequences(flags));
  options.priorities = flags.priorities;
  options.template_variables = flags.template_variables;
  options.seed = flags.sampler.seed;
  options.kv = flags.model.kv;
  WINNOW_ASSIGN(options.session, SessionOptionsFrom(flags.model));
  // A prefix computed in a batch with other texts is not bit-identical.
  options.cache_prompt = flags.cache_prompt.value_or(!flags.model.deterministic);
  options.build = BuildVersion();
  options.words = {.api_key = "--api-key KEY",
                   .cors = "--cors ORIGIN",
                   .metrics = "--metrics",
                   .no_slots = "--no-slots",
                   .priorities = "--scheduling-policy priority"};
  options.id_seed = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  return options;
}

Result<server::HttpOptions> HttpOptionsFrom(const ServeFlags& flags) {
  if (flags.port < 0 || flags.port > kMaxPort) {
    return Error{"flag --port: found " + std::to_string(flags.port) + ", expected 0 to 65535"};
  }
  if (flags.ssl_key_file.has_value() != flags.ssl_cert_file.has_value()) {
    return Error{"give both --ssl-key-file and --ssl-cert-file"};
  }
  constexpr int kMaxThreads = 16;
  if (flags.n_http_threads == 0 || flags.n_http_threads < -1 ||
      flags.n_http_threads > kMaxThreads) {
    return Error{"flag --threads-http: found " + std::to_string(flags.n_http_threads) +
                 ", expected 1 to 16, or -1 for as many as it needs"};
  }
  constexpr int64_t kLongest = 100'000'000;  // three years; clocks count nanoseconds in 64 bits
  if (flags.timeout_s < 1 || flags.timeout_s > kLongest) {
    return Error{"flag --timeout: found " + std::to_string(flags.timeout_s) +
                 " seconds, expected 1 to " + std::to_string(kLongest)};
  }
  server::HttpOptions options;
  options.host = flags.host;
  options.port = static_cast<uint16_t>(flags.port);
  if (flags.n_http_threads > 0) options.n_threads = flags.n_http_threads;
  options.max_buffers_bytes = static_cast<size_t>(flags.http_buffers_bytes);
  options.key_file = flags.ssl_key_file.value_or("");
  options.cert_file = flags.ssl_cert_file.value_or("");
  options.words = {.host = "--host",
                   .port = "--port",
                   .key_file = "--ssl-key-file",
                   .cert_file = "--ssl-cert-file"};
  options.idle = options.write = std::chrono::seconds(flags.timeout_s);
  return options;
}

Result<runtime::SchedulerOptions> SchedulerOptionsFrom(const ServeFlags& flags) {
  constexpr int64_t kMaxSequences = 4096;
  const int64_t n_parallel = MaxSequences(flags);
  if (n_parallel < 1 || n_parallel > kMaxSequences) {
    return Error{"flag -np: found " + std::to_string(n_parallel) + ", expected 1 to 4096, or -1"};
  }
  if (flags.max_waiting < 1 || flags.max_waiting > 1'000'000) {
    return Error{"flag --max-waiting: expected 1 to 1000000"};
  }
  if (!(flags.max_token_gap_ms >= 1)) return Error{"flag --max-token-gap: expected 1 or more"};
  if (flags.default_max_tokens < -1 || flags.default_max_tokens == 0) {
    return Error{"flag --default-max-tokens: expected 1 or more, or -1"};
  }
  runtime::SchedulerOptions options;
  options.memory_limit_bytes = flags.memory_limit.value_or(0);
  options.max_token_gap_ms = flags.max_token_gap_ms;
  options.max_running = static_cast<int>(n_parallel);
  options.max_waiting = static_cast<int>(flags.max_waiting);
  options.default_max_tokens = flags.default_max_tokens;
  WINNOW_ASSIGN(options.defaults, SessionOptionsFrom(flags.model));
  options.session_path = flags.session_path.value_or("");
  return options;
}

}  // namespace winnow::apps

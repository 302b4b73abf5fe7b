// Sets flags of 'winnow serve' from environment variables.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "serve_flags.h"

namespace winnow::apps {
namespace {

// A variable and the flag it sets. A switch is on or off; off_flag "": off has no effect.
struct Variable {
  const char* name;
  const char* flag;
  const char* off_flag = nullptr;  // switches only
};

constexpr Variable kVariables[] = {
    {"LLAMA_ARG_MODEL", "--model"},
    {"LLAMA_ARG_CTX_SIZE", "--ctx-size"},
    {"LLAMA_ARG_THREADS", "--threads"},
    {"LLAMA_ARG_BATCH", "--batch-size"},
    {"LLAMA_ARG_UBATCH", "--ubatch-size"},
    {"LLAMA_ARG_CACHE_TYPE_K", "--cache-type-k"},
    {"LLAMA_ARG_CACHE_TYPE_V", "--cache-type-v"},
    {"LLAMA_ARG_N_GPU_LAYERS", "--n-gpu-layers"},
    {"LLAMA_ARG_N_PARALLEL", "--parallel"},
    {"LLAMA_ARG_N_PREDICT", "--n-predict"},
    {"LLAMA_ARG_HOST", "--host"},
    {"LLAMA_ARG_PORT", "--port"},
    {"LLAMA_ARG_ALIAS", "--alias"},
    {"LLAMA_API_KEY", "--api-key"},
    {"LLAMA_ARG_API_KEY_FILE", "--api-key-file"},
    {"LLAMA_ARG_SSL_KEY_FILE", "--ssl-key-file"},
    {"LLAMA_ARG_SSL_CERT_FILE", "--ssl-cert-file"},
    {"LLAMA_ARG_TIMEOUT", "--timeout"},
    {"LLAMA_ARG_THREADS_HTTP", "--threads-http"},
    {"LLAMA_ARG_TEMPERATURE", "--temp"},
    {"LLAMA_ARG_TOP_K", "--top-k"},
    {"LLAMA_ARG_TOP_P", "--top-p"},
    {"LLAMA_ARG_MIN_P", "--min-p"},
    {"LLAMA_ARG_REPEAT_PENALTY", "--repeat-penalty"},
    {"LLAMA_ARG_PRESENCE_PENALTY", "--presence-penalty"},
    {"LLAMA_ARG_FREQUENCY_PENALTY", "--frequency-penalty"},
    {"LLAMA_ARG_CHAT_TEMPLATE", "--chat-template"},
    {"LLAMA_ARG_CHAT_TEMPLATE_FILE", "--chat-template-file"},
    {"LLAMA_ARG_CHAT_TEMPLATE_KWARGS", "--chat-template-kwargs"},
    {"LLAMA_CHAT_TEMPLATE_KWARGS", "--chat-template-kwargs"},  // older name
    {"LLAMA_ARG_JINJA", "--jinja", "--no-jinja"},
    {"LLAMA_ARG_ENDPOINT_METRICS", "--metrics", ""},
    {"LLAMA_ARG_ENDPOINT_SLOTS", "--slots", "--no-slots"},
    {"LLAMA_ARG_NO_ENDPOINT_SLOTS", "--no-slots"},
    {"LLAMA_ARG_ENDPOINT_PROPS", "--props", ""},
    {"LLAMA_ARG_CONT_BATCHING", "--cont-batching", "--no-cont-batching"},
    {"LLAMA_ARG_CACHE_PROMPT", "--cache-prompt", "--no-cache-prompt"},
    {"LLAMA_ARG_NO_CACHE_PROMPT", "--no-cache-prompt"},
    {"LLAMA_ARG_NO_CONT_BATCHING", "--no-cont-batching"},
    {"LLAMA_ARG_NO_JINJA", "--no-jinja"},
    {"LLAMA_ARG_NO_WEBUI", "--no-webui"},
    {"LLAMA_ARG_WEBUI", "--webui", "--no-webui"},
    {"LLAMA_ARG_NO_UI", "--no-ui"},
    {"LLAMA_ARG_UI", "--ui", "--no-ui"},
    // Cause the same note or rejection as their flags.
    {"LLAMA_ARG_CACHE_RAM", "--cache-ram"},
    {"LLAMA_ARG_CACHE_REUSE", "--cache-reuse"},
    {"LLAMA_ARG_CONTEXT_SHIFT", "--context-shift", "--no-context-shift"},
    {"LLAMA_ARG_NO_CONTEXT_SHIFT", "--no-context-shift"},
    {"LLAMA_ARG_DEVICE", "--device"},
    {"LLAMA_ARG_DRAFT_MAX", "--draft-max"},
    {"LLAMA_ARG_DRAFT_MIN", "--draft-min"},
    {"LLAMA_ARG_EMBEDDINGS", "--embeddings", ""},
    {"LLAMA_ARG_FLASH_ATTN", "--flash-attn"},
    {"LLAMA_ARG_HF_FILE", "--hf-file"},
    {"LLAMA_ARG_HF_REPO", "--hf-repo"},
    {"LLAMA_ARG_KV_OFFLOAD", "", "--no-kv-offload"},
    {"LLAMA_ARG_NO_KV_OFFLOAD", "--no-kv-offload"},
    {"LLAMA_ARG_KV_UNIFIED", "--kv-unified", ""},
    {"LLAMA_ARG_LOAD_MODE", "--load-mode"},
    {"LLAMA_ARG_LOG_FILE", "--log-file"},
    {"LLAMA_ARG_MAIN_GPU", "--main-gpu"},
    {"LLAMA_ARG_MLOCK", "--mlock", ""},
    {"LLAMA_ARG_MMAP", "--mmap", "--no-mmap"},
    {"LLAMA_ARG_NO_MMAP", "--no-mmap"},
    {"LLAMA_ARG_MODEL_DRAFT", "--model-draft"},
    {"LLAMA_ARG_MODEL_URL", "--model-url"},
    {"LLAMA_ARG_NUMA", "--numa"},
    {"LLAMA_ARG_OFFLINE", "--offline", ""},
    {"LLAMA_ARG_POOLING", "--pooling"},
    {"LLAMA_ARG_RERANKING", "--reranking", ""},
    {"LLAMA_ARG_ROPE_FREQ_BASE", "--rope-freq-base"},
    {"LLAMA_ARG_ROPE_FREQ_SCALE", "--rope-freq-scale"},
    {"LLAMA_ARG_ROPE_SCALE", "--rope-scale"},
    {"LLAMA_ARG_ROPE_SCALING_TYPE", "--rope-scaling"},
    {"LLAMA_ARG_SPEC_DRAFT_MODEL", "--model-draft"},
    {"LLAMA_ARG_SPLIT_MODE", "--split-mode"},
    {"LLAMA_ARG_TENSOR_SPLIT", "--tensor-split"},
    {"LLAMA_ARG_THINK", "--reasoning-format"},
    {"LLAMA_LOG_FILE", "--log-file"},
    {"LLAMA_OFFLINE", "--offline", ""},
    {"WINNOW_ARG_KV_METHOD", "--kv-method"},
    {"WINNOW_ARG_KV_DECODE", "--kv-decode"},
    {"WINNOW_ARG_KV_SIZE", "--kv-size"},
    {"WINNOW_ARG_KV_RATIO", "--kv-ratio"},
    {"WINNOW_ARG_KV_MEMORY", "--kv-memory"},
    {"WINNOW_ARG_MEMORY_LIMIT", "--memory-limit"},
    {"WINNOW_ARG_HTTP_BUFFERS", "--http-buffers"},
    {"WINNOW_ARG_MAX_TOKEN_GAP", "--max-token-gap"},
    {"WINNOW_ARG_SCHEDULING_POLICY", "--scheduling-policy"},
    {"WINNOW_ARG_SESSION_PATH", "--session-path"},
    {"WINNOW_ARG_DEFAULT_MAX_TOKENS", "--default-max-tokens"},
};

// At most one flag of each group may be given.
constexpr std::array<std::string_view, 3> kExclusive[] = {
    {"--kv-size", "--kv-ratio", "--kv-memory"},
    {"--chat-template", "--chat-template-file"},
};

// Whether the command line has the flag, or one that excludes it.
bool IsOnCommandLine(const FlagTable& typed, std::string_view flag) {
  const auto is_given = [&](std::string_view name) { return !name.empty() && typed.Given(name); };
  return is_given(flag) || std::ranges::any_of(kExclusive, [&](const auto& group) {
           return std::ranges::find(group, flag) != group.end() &&
                  std::ranges::any_of(group, is_given);
         });
}

bool IsAmong(std::string_view value, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), value) != words.end();
}

}  // namespace

std::string VariableNames() {
  std::string names;
  for (const Variable& variable : kVariables) {
    names += (names.empty() ? "" : ", ") + std::string(variable.name);
  }
  return names;
}

std::vector<std::string> UnknownVariables(const char* const* variables) {
  std::vector<std::string> unknown;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view text = *variables;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("LLAMA_ARG_") && !name.starts_with("WINNOW_ARG_")) continue;
    const auto is_known = [&](const Variable& variable) { return name == variable.name; };
    if (std::ranges::none_of(kVariables, is_known)) unknown.emplace_back(name);
  }
  return unknown;
}

Result<void> ReadEnvironment(FlagTable& table, const FlagTable& typed, Environment environment) {
  for (const Variable& variable : kVariables) {
    if (IsOnCommandLine(typed, variable.flag)) continue;
    const char* found = environment(variable.name);
    // As in llama-server, the presence of a LLAMA_ARG_NO_ variable is enough, whatever its value.
    const bool is_no = std::string_view(variable.name).starts_with("LLAMA_ARG_NO_");
    if (found == nullptr || (*found == '\0' && !is_no)) continue;
    std::vector<std::string> arguments;
    if (is_no) {
      arguments = {variable.flag};
    } else if (variable.off_flag == nullptr) {
      arguments = {variable.flag, found};
    } else if (IsAmong(found, {"1", "on", "true", "enabled"})) {
      if (*variable.flag != '\0') arguments = {variable.flag};
    } else if (IsAmong(found, {"0", "off", "false", "disabled"})) {
      if (*variable.off_flag != '\0') arguments = {variable.off_flag};
    } else {
      return Error{std::string(variable.name) + ": found '" + found + "', expected on or off"};
    }
    const auto rest = table.Parse(arguments);
    if (!rest) return Error{std::string(variable.name) + ": " + rest.error().message};
    if (!rest->empty()) {  // such as an unknown value of --flash-attn
      return Error{std::string(variable.name) + ": unexpected '" + rest->front() + "'"};
    }
  }
  return {};
}

}  // namespace winnow::apps

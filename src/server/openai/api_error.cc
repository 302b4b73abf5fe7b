#include "server/openai/api_error.h"

#include <string_view>
#include <utility>

namespace winnow::server {
namespace {

const char* ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return "invalid_request_error";
  }
}

// The engine's names of settings that a client cannot change, and what clients read instead.
constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
    {"`keys` and `values` of bf16", "the server's cache types bf16"},
    {"`context`", "the server's context"},
    {"`prefill_chunk`", "the server's prefill chunk"},
    {"`check_tensors`", "the server's check of tensors"},
    {"`logit_bias`", "logit_bias"}};

std::string InClientsWords(std::string text) {
  for (const auto& [option, word] : kFlags) {
    if (const size_t at = text.find(option); at != std::string::npos) {
      text.replace(at, option.size(), word);
    }
  }
  return text;
}

std::string FieldName(const std::string& param, const std::string& prompt_field) {
  if (param == "prompt") return prompt_field;
  if (param == "memory_bytes") return "kv_memory";
  return param == "ratio" || param == "size" ? "kv_" + param : param;
}

report::Value TextOrNull(const std::string& text) {
  return text.empty() ? report::Value() : report::Value(text);
}

}  // namespace

report::Record ErrorRecord(const ApiError& error) {
  return {{"error", report::Record{{"message", error.message},
                                   {"type", ErrorType(error.status)},
                                   {"param", TextOrNull(error.param)},
                                   {"code", TextOrNull(error.code)}}}};
}

ApiError ErrorFrom(const runtime::RequestError& error, const std::string& prompt_field) {
  using runtime::ErrorKind;
  const std::string message = InClientsWords(error.message);
  switch (error.kind) {
    case ErrorKind::kInvalid:
      return {.status = 400, .message = message, .param = FieldName(error.param, prompt_field)};
    case ErrorKind::kTooLarge:
      return {.status = 400, .message = message, .code = "memory_limit_exceeded"};
    case ErrorKind::kNotFound:
      return {.status = 404, .message = message, .code = "session_not_found"};
    case ErrorKind::kBusy:
      return {.status = 409, .message = message, .code = "session_busy"};
    case ErrorKind::kQueueFull:
      return {.status = 429, .message = message, .code = "queue_full"};
    case ErrorKind::kUnavailable:
      return {.status = 503, .message = message, .code = "unavailable"};
    case ErrorKind::kInternal:
      break;
  }
  return {.status = 500, .message = message, .code = "internal_error"};
}

}  // namespace winnow::server

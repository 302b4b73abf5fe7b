#include "server/openai/api_error.h"

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
  switch (error.kind) {
    case ErrorKind::kInvalid:
      return {.status = 400,
              .message = error.message,
              .param = error.param == "prompt" ? prompt_field : error.param};
    case ErrorKind::kTooLarge:
      return {.status = 400, .message = error.message, .code = "memory_limit_exceeded"};
    case ErrorKind::kNotFound:
      return {.status = 404, .message = error.message, .code = "session_not_found"};
    case ErrorKind::kBusy:
      return {.status = 409, .message = error.message, .code = "session_busy"};
    case ErrorKind::kQueueFull:
      return {.status = 429, .message = error.message, .code = "queue_full"};
    case ErrorKind::kUnavailable:
      return {.status = 503, .message = error.message, .code = "unavailable"};
    case ErrorKind::kInternal:
      break;
  }
  return {.status = 500, .message = error.message, .code = "internal_error"};
}

}  // namespace winnow::server

#include "server/openai/context.h"

#include <chrono>
#include <utility>

#include "report/parse_json.h"

namespace winnow::server {

std::string IdSource::Draw() {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kLength = 24;
  const std::lock_guard lock(mutex_);
  std::string id;
  for (int i = 0; i < kLength; ++i) id += kLetters[rng_.Below(kLetters.size())];
  return id;
}

uint64_t IdSource::DrawSeed() {
  constexpr uint64_t kSeeds = uint64_t{1} << 53;
  const std::lock_guard lock(mutex_);
  return rng_.Below(kSeeds);
}

void SendJson(Context& context, Exchange& exchange, const report::Value& body, int status) {
  context.metrics.OnResponse(status);
  exchange.Send({.status = status, .body = report::ToJson(body)});
}

void SendError(Metrics& metrics, Exchange& exchange, const ApiError& error) {
  metrics.OnResponse(error.status);
  HttpResponse response = {.status = error.status, .body = report::ToJson(ErrorRecord(error))};
  if (error.status == 429 || error.status == 503) response.headers = {{"retry-after", "1"}};
  exchange.Send(std::move(response));
}

std::optional<report::Record> ReadBody(const HttpRequest& request, ApiError& error) {
  // More than any prompt has tokens. A body of nested lists alone would take many times its bytes.
  constexpr int64_t kMaxValues = int64_t{1} << 20;
  auto value = report::ParseJson(request.body, kMaxValues);
  if (!value) {
    error = {
        .status = 400, .message = "the body: " + value.error().message, .code = "invalid_json"};
    return std::nullopt;
  }
  auto* record = std::get_if<report::Record>(&value->data);
  if (record == nullptr) {
    error = {.status = 400, .message = "the body is not a JSON object", .code = "invalid_json"};
    return std::nullopt;
  }
  return std::move(*record);
}

int64_t UnixTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace winnow::server

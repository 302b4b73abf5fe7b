// Request bodies, for every path that takes one: any body gets exactly one response, it is JSON (or
// a stream), and nothing crashes.
//
// The first byte chooses the path, the rest is the body.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "report/parse_json.h"
#include "server/openai/testing/fakes.h"

namespace {

using winnow::server::testing::FakeExchange;
using winnow::server::testing::Fixture;

constexpr const char* kPaths[] = {
    "/v1/chat/completions",
    "/v1/completions",
    "/completion",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/sessions",
    "/v1/sessions/doc/fork",
    "/v1/sessions/doc/save",
    "/slots/0",
    "/v1/sessions/a/restore",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const auto fixture = std::make_unique<Fixture>();
  fixture->backend.requests.clear();
  fixture->backend.sessions = {{"doc", {104, 101}}};
  const std::string path = kPaths[data[0] % std::size(kPaths)];
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto exchange = fixture->Exercise(
      {.method = "POST", .path = path, .query = {{"action", "save"}}, .body = body});
  WINNOW_CHECK(exchange->ended());
  WINNOW_CHECK(exchange->status() >= 200 && exchange->status() < 500);
  if (!exchange->streamed()) {
    WINNOW_CHECK(winnow::report::ParseJson(exchange->response().body).has_value());
  }
  return 0;
}

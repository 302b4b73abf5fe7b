// winnow_jinja_render: renders templates for tests. Reads JSON objects from standard input, one per
// line:
//   {"template": "...", "context": {...}, "time": 0}
// and writes one object for each: {"text": "...", "trusted": "..."} or {"error": "..."}. `trusted`
// is the part of the text that may become control tokens.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "jinja/template.h"

namespace {

using Json = nlohmann::ordered_json;

Json Answer(const Json& request) {
  const auto parsed =
      winnow::jinja::Template::Parse(request.at("template").get_ref<const std::string&>());
  if (!parsed) return {{"error", parsed.error().message}, {"parsed", false}};
  winnow::jinja::RenderOptions options;
  options.unix_time = request.value("time", int64_t{0});
  const auto segments = parsed->Render(request.at("context"), options);
  if (!segments) return {{"error", segments.error().message}};
  std::string text;
  std::string trusted;
  for (const auto& segment : *segments) {
    text += segment.text;
    if (segment.trusted) trusted += segment.text;
  }
  return {{"text", text}, {"trusted", trusted}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const Json answer =
        request.is_object() && request.contains("template") && request.contains("context")
            ? Answer(request)
            : Json{{"error", "not a request"}};
    std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}

// Chat templates: any source is parsed and rendered within its limits, and text from a client never
// becomes part of the template's own text.
//
// The first line is a client's message; the rest is the template.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "jinja/template.h"

namespace {

using Json = nlohmann::ordered_json;
using winnow::jinja::Limits;
using winnow::jinja::Template;

// Marks text from a client. It must come out untrusted, unless the template contains this byte too.
constexpr char kTyped = '\x7f';

Json ContextFrom(std::string message) {
  message += kTyped;
  const Json call = {
      {"id", "abcdefghi"},
      {"type", "function"},
      {"function", {{"name", message}, {"arguments", {{"a", Json::array({1, message})}}}}}};
  return {{"messages",
           Json::array(
               {{{"role", "system"}, {"content", "Be brief."}},
                {{"role", "user"}, {"content", message}},
                {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}},
                {{"role", "tool"}, {"content", "5"}, {"tool_call_id", "abcdefghi"}}})},
          {"tools", Json::array({{{"type", "function"},
                                  {"function", {{"name", "f"}, {"parameters", {{"x", 1.5}}}}}}})},
          {"add_generation_prompt", true},
          {"bos_token", "<s>"},
          {"n", 3},
          {"s", message},
          {"xs", Json::array({3, 1, 2})}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string message(text.substr(0, line));
  const std::string_view source = text.substr(std::min(line + 1, text.size()));
  const auto parsed = Template::Parse(source);
  if (!parsed) {
    WINNOW_CHECK(!parsed.error().message.empty());
    return 0;
  }
  const Limits limits = {.max_steps = 100'000,
                         .max_output_bytes = size_t{1} << 20,
                         .max_work_bytes = size_t{16} << 20};
  const auto segments = parsed->Render(ContextFrom(message), {.limits = limits});
  if (!segments) {
    WINNOW_CHECK(!segments.error().message.empty());
    return 0;
  }
  const bool in_template =
      source.find(kTyped) != std::string_view::npos || source.find('\\') != std::string_view::npos;
  size_t n_bytes = 0;
  for (const auto& segment : *segments) {
    WINNOW_CHECK(!segment.text.empty());
    n_bytes += segment.text.size();
    WINNOW_CHECK(in_template || !segment.trusted || segment.text.find(kTyped) == std::string::npos);
  }
  WINNOW_CHECK(n_bytes <= limits.max_output_bytes);
  return 0;
}

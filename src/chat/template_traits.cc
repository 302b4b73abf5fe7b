#include "chat/template_traits.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace winnow::chat {
namespace {

using Json = nlohmann::ordered_json;

// Words that no template contains.
constexpr const char* kSystem = "kwwinnowsystem";
constexpr const char* kUser = "kwwinnowuser";
constexpr const char* kArgument = "kwwinnowargument";

Json Message(const char* role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

Json Parts(const char* text) { return Json::array({{{"type", "text"}, {"text", text}}}); }

// A conversation of two messages takes a real template a small part of this. Several are rendered
// when a model is opened, which a hostile template must not make long.
constexpr jinja::Limits kLimits = {.max_steps = 1'000'000,
                                   .max_output_bytes = size_t{1} << 20,
                                   .max_work_bytes = size_t{64} << 20};

// Renders the messages; empty if the template fails.
std::string Written(const jinja::Template& source, const SpecialTexts& special, Json messages) {
  const Json context = {
      {"messages", std::move(messages)}, {"tools", nullptr},         {"documents", nullptr},
      {"add_generation_prompt", false},  {"bos_token", special.bos}, {"eos_token", special.eos}};
  const auto segments = source.Render(context, {.limits = kLimits});
  std::string out;
  if (!segments) return out;
  for (const jinja::Segment& segment : *segments) out += segment.text;
  return out;
}

bool Has(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

bool WantsArgumentText(const jinja::Template& source, const SpecialTexts& special) {
  const auto written = [&](Json arguments) {
    // Mistral's templates check the form of the id; this one passes.
    Json message = Message("assistant", nullptr);
    message["tool_calls"] =
        Json::array({{{"id", "winnow123"},
                      {"type", "function"},
                      {"function", {{"name", "probe"}, {"arguments", std::move(arguments)}}}}});
    return Written(source, special, Json::array({Message("user", kUser), std::move(message)}));
  };
  const Json object = {{kArgument, true}};
  // Concatenating an object with text is an error; printing it gives Python's form.
  const std::string as_object = written(object);
  if (Has(as_object, kArgument) && !Has(as_object, std::string("'") + kArgument)) return false;
  const std::string as_text = written(object.dump());
  return Has(as_text, std::string("\"") + kArgument) &&
         !Has(as_text, std::string("\\\"") + kArgument);
}

}  // namespace

TemplateTraits DetectTraits(const jinja::Template& source, const SpecialTexts& special) {
  TemplateTraits traits;
  traits.takes_tools = source.Reads("tools");
  const bool text = Has(Written(source, special, Json::array({Message("user", kUser)})), kUser);
  const std::string with_parts =
      Written(source, special, Json::array({Message("user", Parts(kUser))}));
  traits.wants_parts = !text && Has(with_parts, kUser) && !Has(with_parts, "'text'");
  const auto content = [&](const char* words) {
    return traits.wants_parts ? Parts(words) : Json(words);
  };
  const auto takes = [&](const char* role) {
    const std::string written =
        Written(source, special,
                Json::array({Message(role, content(kSystem)), Message("user", content(kUser))}));
    return Has(written, kSystem) && Has(written, kUser);
  };
  traits.takes_system = takes("system");
  traits.takes_developer = takes("developer");
  traits.takes_lone_system =
      Has(Written(source, special, Json::array({Message("system", content(kSystem))})), kSystem);
  traits.wants_argument_text = WantsArgumentText(source, special);
  return traits;
}

}  // namespace winnow::chat

#include "server/openai/constraint_fields.h"

#include <nlohmann/json.hpp>

namespace winnow::server {
namespace {

constexpr const char* kNoGrammars =
    "answers cannot be restricted to a schema: this build has no grammars; run "
    "tools/fetch_xgrammar.sh and build with -DWINNOW_GRAMMAR=ON, or ask for JSON in the prompt and "
    "leave it out";

}  // namespace

std::string SchemaText(Fields& fields, const ServiceOptions& options, std::string_view name,
                       const report::Value& schema) {
  if (!std::holds_alternative<report::Record>(schema.data)) {
    fields.Fail(name, std::string("found ") + KindName(schema) + ", expected a JSON schema");
    return {};
  }
  if (options.constraints == nullptr) {
    fields.Fail(name, kNoGrammars, "unsupported_parameter");
    return {};
  }
  return report::ToJson(schema);
}

std::string ReadResponseFormat(Fields& fields, const ServiceOptions& options) {
  const report::Record* format = fields.Object("response_format");
  if (format == nullptr) return {};
  Fields inner(*format, "response_format.");
  const std::string type = inner.Text("type").value_or("");
  if (!inner.ok()) fields.Fail(*inner.error());
  if (type == "text") return {};
  if (type == "json_object") {
    // llama-server's clients give a schema here too.
    const report::Value* schema = inner.Find("schema");
    return SchemaText(fields, options, "response_format",
                      schema == nullptr ? report::Value(report::Record()) : *schema);
  }
  if (type == "json_schema") {
    const report::Record* named = inner.Object("json_schema");
    const report::Value* schema = named == nullptr ? nullptr : named->Find("schema");
    if (schema == nullptr) {
      fields.Fail("response_format", "type json_schema needs json_schema.schema");
      return {};
    }
    return SchemaText(fields, options, "response_format", *schema);
  }
  fields.Fail("response_format.type",
              "found '" + type + "', expected text, json_object or json_schema");
  return {};
}

void ReadToolChoice(Fields& fields, chat::Conversation& conversation) {
  const report::Value* choice = fields.Find("tool_choice");
  if (choice == nullptr) return;
  const auto* text = std::get_if<std::string>(&choice->data);
  if (text != nullptr && (*text == "auto" || *text == "none")) {
    if (*text == "none") conversation.tools = nullptr;
    return;
  }
  const bool is_function = std::holds_alternative<report::Record>(choice->data);
  if (!is_function && (text == nullptr || *text != "required")) {
    fields.Fail("tool_choice", "expected \"auto\", \"none\", \"required\" or a function");
    return;
  }
  if (conversation.tools.is_null()) {
    fields.Fail("tool_choice", "there are no tools to choose from");
    return;
  }
  fields.Fail("tool_choice",
              "a call cannot be forced; use \"auto\" and say in the "
              "prompt that the tool is to be used",
              "unsupported_parameter");
}

}  // namespace winnow::server

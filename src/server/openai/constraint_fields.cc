#include "server/openai/constraint_fields.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace winnow::server {
namespace {

using Kind = ConstraintSpec::Kind;

constexpr const char* kNoGrammars =
    "answers cannot be restricted to a schema, a grammar or a call: this build has no grammars; "
    "run tools/fetch_xgrammar.sh and build with -DWINNOW_GRAMMAR=ON, or omit the field and "
    "describe the format in the prompt";

// Sets the constraint; a request may have only one.
void Set(Fields& fields, const ServiceOptions& options, ConstraintSpec& out, ConstraintSpec spec) {
  if (options.constraints == nullptr) {
    fields.Fail(spec.field, kNoGrammars, "unsupported_parameter");
  } else if (out.kind != Kind::kNone) {
    fields.Fail(spec.field, "cannot be used together with " + out.field + "; give one of them");
  } else {
    out = std::move(spec);
  }
}

void SetSchema(Fields& fields, const ServiceOptions& options, ConstraintSpec& out,
               std::string field, const report::Value& schema) {
  if (!std::holds_alternative<report::Record>(schema.data)) {
    return fields.Fail(field,
                       std::string("found ") + KindName(schema) + ", expected a JSON schema");
  }
  Set(fields, options, out,
      {.kind = Kind::kJsonSchema, .text = report::ToJson(schema), .field = std::move(field)});
}

void ReadResponseFormat(Fields& fields, const ServiceOptions& options, ConstraintSpec& out) {
  const report::Record* format = fields.Object("response_format");
  if (format == nullptr) return;
  Fields inner(*format, "response_format.");
  const std::string type = inner.Text("type").value_or("");
  if (!inner.ok()) fields.Fail(*inner.error());
  if (type == "text") return;
  if (type == "json_object") {
    // llama-server's clients may put a schema here too.
    const report::Value* schema = inner.Find("schema");
    return SetSchema(fields, options, out, "response_format",
                     schema == nullptr ? report::Value(report::Record()) : *schema);
  }
  if (type == "json_schema") {
    const report::Record* named = inner.Object("json_schema");
    const report::Value* schema = named == nullptr ? nullptr : named->Find("schema");
    if (schema == nullptr) {
      return fields.Fail("response_format", "type json_schema needs json_schema.schema");
    }
    return SetSchema(fields, options, out, "response_format", *schema);
  }
  fields.Fail("response_format.type",
              "found '" + type + "', expected text, json_object or json_schema");
}

// The function's name in {"type": "function", "function": {"name": ...}}; empty: absent.
std::string FunctionName(const report::Record& choice) {
  const report::Value* function = choice.Find("function");
  const auto* record = function == nullptr ? nullptr : std::get_if<report::Record>(&function->data);
  const report::Value* name = record == nullptr ? nullptr : record->Find("name");
  const auto* text = name == nullptr ? nullptr : std::get_if<std::string>(&name->data);
  return text == nullptr ? std::string() : *text;
}

// The tools of this name; all if it is empty. ReadConversation has checked their form.
std::vector<ConstraintSpec::Tool> ToolsNamed(const nlohmann::ordered_json& tools,
                                             const std::string& name) {
  std::vector<ConstraintSpec::Tool> out;
  for (const auto& tool : tools) {
    const auto& function = tool["function"];
    const auto own = function["name"].get<std::string>();
    if (!name.empty() && own != name) continue;
    const bool has_schema = function.contains("parameters") && function["parameters"].is_object();
    out.push_back({own, has_schema ? function["parameters"].dump() : "{}"});
  }
  return out;
}

}  // namespace

ConstraintSpec ReadConstraint(Fields& fields, const ServiceOptions& options) {
  ConstraintSpec out;
  ReadResponseFormat(fields, options, out);
  if (const report::Value* schema = fields.Find("json_schema")) {
    SetSchema(fields, options, out, "json_schema", *schema);
  }
  // llama-server's clients send "" for no grammar.
  if (auto grammar = fields.Text("grammar"); grammar && !grammar->empty()) {
    Set(fields, options, out,
        {.kind = Kind::kGrammar, .text = *std::move(grammar), .field = "grammar"});
  }
  return out;
}

void ReadToolChoice(Fields& fields, const ServiceOptions& options, chat::ToolFormat format,
                    chat::Conversation& conversation, ConstraintSpec& constraint) {
  const std::optional<bool> several = fields.Bool("parallel_tool_calls");
  const report::Value* choice = fields.Find("tool_choice");
  const auto* text = choice == nullptr ? nullptr : std::get_if<std::string>(&choice->data);
  if (text != nullptr && *text == "none") conversation.tools = nullptr;
  if (choice == nullptr || (text != nullptr && (*text == "auto" || *text == "none"))) {
    const bool writes_calls = !conversation.tools.is_null() && format != chat::ToolFormat::kNone;
    // Another constraint already determines the whole answer.
    if (!writes_calls || options.constraints == nullptr || constraint.kind != Kind::kNone) return;
    constraint = {.kind = Kind::kAutoCalls,
                  .tools = ToolsNamed(conversation.tools, ""),
                  .format = format,
                  .several_calls = several.value_or(true),
                  .field = "tools"};
    return;
  }
  const auto* named = std::get_if<report::Record>(&choice->data);
  const std::string name = named == nullptr ? std::string() : FunctionName(*named);
  const bool is_required = text != nullptr && *text == "required";
  if (!is_required && name.empty()) {
    fields.Fail("tool_choice",
                "expected \"auto\", \"none\", \"required\" or {\"type\": \"function\", "
                "\"function\": {\"name\": ...}}");
    return;
  }
  if (conversation.tools.is_null()) {
    fields.Fail("tool_choice", "there are no tools to choose from");
    return;
  }
  std::vector<ConstraintSpec::Tool> tools = ToolsNamed(conversation.tools, name);
  if (tools.empty()) {
    fields.Fail("tool_choice", "there is no tool '" + name + "'");
    return;
  }
  Set(fields, options, constraint,
      {.kind = Kind::kCalls,
       .tools = std::move(tools),
       .format = format,
       .several_calls = several.value_or(false) && is_required,
       .field = "tool_choice"});
}

}  // namespace winnow::server

#include "grammar/call_format.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "grammar/schema_limits.h"

namespace winnow::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxTools = 128;
constexpr size_t kMaxToolNameBytes = 256;

struct Tool {
  std::string name;
  Json parameters;
};

// Errors: those of CallsFormat.
Result<std::vector<Tool>> ReadTools(std::span<const ToolSchema> tools) {
  if (tools.empty()) return Error{"tools: the list is empty"};
  if (tools.size() > kMaxTools) {
    return Error{"tools: found " + std::to_string(tools.size()) +
                 " that can be called, expected at most " + std::to_string(kMaxTools)};
  }
  std::vector<Tool> read;
  SchemaSize size;
  for (const ToolSchema& tool : tools) {
    if (tool.name.size() > kMaxToolNameBytes) {
      return Error{"tools: found a name of " + std::to_string(tool.name.size()) +
                   " bytes, expected at most " + std::to_string(kMaxToolNameBytes)};
    }
    size.bytes += tool.name.size();
    WINNOW_ASSIGN(Json parameters, ParseSchema("tool '" + tool.name + "': the schema of parameters",
                                               tool.parameters, size));
    if (parameters.empty()) parameters = {{"type", "object"}};
    read.push_back({tool.name, std::move(parameters)});
  }
  return read;
}

// Parts of xgrammar's structural tags.
Json OfSchema(const Json& schema) {
  return {{"type", "json_schema"}, {"json_schema", schema}, {"max_whitespace_cnt", kMaxSpaces}};
}
Json Constant(const std::string& text) { return {{"type", "const_string"}, {"value", text}}; }
Json Pattern(const std::string& pattern) { return {{"type", "regex"}, {"pattern", pattern}}; }
Json Optional(const Json& part) { return {{"type", "optional"}, {"content", part}}; }
Json Sequence(const std::vector<Json>& parts) {
  return {{"type", "sequence"}, {"elements", parts}};
}
Json Choice(const std::vector<Json>& parts) {
  if (parts.size() == 1) return parts[0];
  return {{"type", "or"}, {"elements", parts}};
}
Json Spaces() { return Pattern("[ \\n\\r\\t]{0," + std::to_string(kMaxSpaces) + "}"); }
// The parts with white space between them.
Json Spaced(const std::vector<Json>& parts) {
  std::vector<Json> spaced;
  for (const Json& part : parts) {
    if (!spaced.empty()) spaced.push_back(Spaces());
    spaced.push_back(part);
  }
  return Sequence(spaced);
}

// {"name": ..., ARGUMENTS: {...}}; `any_order`: or the members swapped, as Hermes 2 Pro writes
// them. "$ref" in the parameters refers to their own schema. (xgrammar's any_order would also allow
// members twice or not at all.)
Json CallObject(const Tool& tool, const std::string& arguments, bool any_order) {
  const auto member = [](const std::string& key, const Json& value) {
    return Spaced({Constant(Json(key).dump()), Constant(":"), value});
  };
  const Json name = member("name", Constant(Json(tool.name).dump()));
  const Json values = member(arguments, OfSchema(tool.parameters));
  const Json comma = Constant(",");
  std::vector<Json> orders = {Spaced({name, comma, values})};
  if (any_order) orders.push_back(Spaced({values, comma, name}));
  return Spaced({Constant("{"), Choice(orders), Constant("}")});
}

}  // namespace

Result<std::string> CallsFormat(const CallSyntax& syntax, std::span<const ToolSchema> tools) {
  WINNOW_ASSIGN(const std::vector<Tool> read, ReadTools(tools));
  Json tags = Json::array();
  for (const Tool& tool : read) {
    tags.push_back({{"type", "tag"},
                    {"begin", syntax.begin},
                    {"content", CallObject(tool, syntax.arguments, /*any_order=*/false)},
                    {"end", syntax.end}});
  }
  const Json calls = {{"type", "tags_with_separator"},
                      {"tags", tags},
                      {"separator", syntax.between},
                      {"at_least_one", true},
                      {"stop_after_first", !syntax.several}};
  return calls.dump();
}

Result<std::string> BegunCallFormat(const BegunCallSyntax& syntax,
                                    std::span<const ToolSchema> tools) {
  WINNOW_ASSIGN(const std::vector<Tool> read, ReadTools(tools));
  std::vector<Json> objects, ways;
  for (const Tool& tool : read) {
    objects.push_back(CallObject(tool, syntax.arguments, /*any_order=*/true));
    if (!syntax.listed) continue;
    const Json id = Sequence({Constant("[CALL_ID]"), Pattern("[0-9A-Za-z_-]{1,64}")});
    ways.push_back(Sequence({Constant(tool.name), Optional(id), Optional(Constant("[ARGS]")),
                             OfSchema(tool.parameters)}));
  }
  const Json spaces = Spaces();
  const Json object = Choice(objects);
  if (!syntax.listed) {
    std::vector<Json> call = {spaces, object};
    if (!syntax.end.empty()) call.insert(call.end(), {spaces, Constant(syntax.end)});
    return Sequence(call).dump();
  }
  std::vector<Json> list = {Constant("["), spaces, object};
  if (syntax.several) {
    list.push_back(
        {{"type", "star"}, {"content", Sequence({spaces, Constant(","), spaces, object})}});
  }
  list.push_back(spaces);
  list.push_back(Constant("]"));
  ways.push_back(Sequence(list));
  return Sequence({spaces, Choice(ways)}).dump();
}

}  // namespace winnow::grammar

#include "jinja/template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace winnow::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxJsonLevels = 200;

// Converts a client's JSON to values.
class Converter {
 public:
  Converter(Interpreter& interpreter, Heap& heap, const IsTrusted& trusted)
      : interpreter_(interpreter), heap_(heap), trusted_(trusted) {}

  Value Convert(const Json& json) {
    if (!interpreter_.Step()) return Value();
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
        return Value(json.get<int64_t>());
      case Json::value_t::number_unsigned: {
        const auto number = json.get<uint64_t>();
        return number <= INT64_MAX ? Value(static_cast<int64_t>(number))
                                   : Value(static_cast<double>(number));
      }
      case Json::value_t::number_float:
        return Value(json.get<double>());
      case Json::value_t::string: {
        const auto& text = json.get_ref<const std::string&>();
        return interpreter_.Make(Text(text, trusted_ && trusted_(path_, text)));
      }
      case Json::value_t::array: {
        if (!Enter("")) return Value();
        std::vector<Value> items;
        for (const Json& item : json) items.push_back(Convert(item));
        path_.pop_back();
        return interpreter_.MakeList(std::move(items));
      }
      case Json::value_t::object: {
        Dict* dict = heap_.NewDict();
        Fill(json, dict);
        return Value(dict);
      }
      default:
        return Value();
    }
  }

  void Fill(const Json& object, Dict* dict) {
    for (const auto& [key, value] : object.items()) {
      if (!Enter(key) || !interpreter_.Charge(2 * sizeof(Value) + key.size())) return;
      dict->Set(Text(key, false), Convert(value));
      path_.pop_back();
    }
  }

 private:
  bool Enter(std::string_view key) {
    if (path_.size() >= kMaxJsonLevels) {
      interpreter_.Fail("the context is nested deeper than " + std::to_string(kMaxJsonLevels) +
                        " levels");
      return false;
    }
    path_.push_back(key);
    return true;
  }

  Interpreter& interpreter_;
  Heap& heap_;
  const IsTrusted& trusted_;
  std::vector<std::string_view> path_;
};

std::vector<Segment> SegmentsFrom(const Text& text) {
  std::vector<Segment> out;
  for (size_t i = 0; i < text.runs().size(); ++i) {
    const size_t begin = text.runs()[i].begin;
    const size_t end = i + 1 < text.runs().size() ? text.runs()[i + 1].begin : text.size();
    out.push_back({text.bytes().substr(begin, end - begin), text.runs()[i].trusted});
  }
  return out;
}

}  // namespace

Result<Template> Template::Parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return Error{"the template is " + std::to_string(source.size()) + " bytes, expected at most " +
                 std::to_string(limits.max_source_bytes)};
  }
  WINNOW_ASSIGN(Ast ast, jinja::Parse(source));
  Names names;
  for (const auto& expression : ast.expressions) {
    if (expression->kind == ExpressionKind::kName) names.insert(expression->text);
  }
  return Template(std::make_shared<const Ast>(std::move(ast)),
                  std::make_shared<const Names>(std::move(names)));
}

Result<std::vector<Segment>> Template::Render(const Json& context,
                                              const RenderOptions& options) const {
  Heap heap;
  Dict variables;
  Interpreter interpreter(options, &variables, heap);
  Converter(interpreter, heap, options.trusted).Fill(context, &variables);
  WINNOW_ASSIGN(const Text text, interpreter.Run(*ast_));
  return SegmentsFrom(text);
}

}  // namespace winnow::jinja

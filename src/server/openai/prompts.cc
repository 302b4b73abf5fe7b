#include "server/openai/prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace winnow::server {
namespace {

constexpr size_t kMaxPrompts = 128;

class PromptReader {
 public:
  PromptReader(Fields& fields, const tokenizer::Tokenizer& tokenizer,
               std::span<const tokenizer::TokenId> before)
      : fields_(fields), tokenizer_(tokenizer), before_(before) {}

  PromptText FromText(const std::string& text) const { return {Begin(text), text}; }

  // Token ids as they are. Texts between them get no BOS: the list has its own.
  PromptText FromList(const report::List& list) const {
    PromptText out;
    out.tokens.assign(before_.begin(), before_.end());
    for (const report::Value& item : list) {
      if (const auto* id = std::get_if<int64_t>(&item.data)) {
        if (*id < 0 || *id >= tokenizer_.vocabulary_size()) {
          fields_.Fail("prompt", "token " + std::to_string(*id) + " is not in the vocabulary of " +
                                     std::to_string(tokenizer_.vocabulary_size()));
          return {};
        }
        out.tokens.push_back(static_cast<tokenizer::TokenId>(*id));
      } else if (const auto* text = std::get_if<std::string>(&item.data)) {
        if (&item == &list.front()) {
          out.tokens = Begin(*text);
          continue;
        }
        const tokenizer::MarkedText marked = {*text, true};
        const Tokens tokens = tokenizer_.EncodeMarked({&marked, 1}, /*add_special=*/false);
        out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
      } else {
        fields_.Fail("prompt", std::string("found ") + KindName(item) +
                                   " in the list, expected token ids or texts");
        return {};
      }
    }
    out.text = tokenizer_.Decode(std::span(out.tokens).subspan(before_.size()),
                                 /*render_special=*/true);
    return out;
  }

 private:
  // `text` after what is before. Not Encode, which may append EOS: the text is continued.
  Tokens Begin(const std::string& text) const {
    const tokenizer::MarkedText marked = {text, true};
    if (before_.empty()) return tokenizer_.EncodeMarked({&marked, 1});
    Tokens tokens(before_.begin(), before_.end());
    const Tokens added = tokenizer_.EncodeAfter(before_.back(), {&marked, 1});
    tokens.insert(tokens.end(), added.begin(), added.end());
    return tokens;
  }

  Fields& fields_;
  const tokenizer::Tokenizer& tokenizer_;
  std::span<const tokenizer::TokenId> before_;
};

bool IsText(const report::Value& value) { return std::holds_alternative<std::string>(value.data); }
bool IsList(const report::Value& value) { return std::holds_alternative<report::List>(value.data); }

void CheckContent(Fields& fields, const std::string& where, const report::Value& content) {
  if (IsText(content) || std::holds_alternative<std::monostate>(content.data)) return;
  const auto* parts = std::get_if<report::List>(&content.data);
  if (parts == nullptr) {
    return fields.Fail(where + ".content", std::string("found ") + KindName(content) +
                                               ", expected a text or a list of parts");
  }
  for (const report::Value& part : *parts) {
    const auto* record = std::get_if<report::Record>(&part.data);
    const report::Value* type = record == nullptr ? nullptr : record->Find("type");
    const auto* name = type == nullptr ? nullptr : std::get_if<std::string>(&type->data);
    if (name == nullptr) {
      return fields.Fail(where + ".content", "a part has no type");
    }
    if (*name != "text") {
      return fields.Fail(where + ".content",
                         "a part is of type " + *name + ", this model reads text only",
                         "unsupported_content");
    }
    const report::Value* text = record->Find("text");
    if (text == nullptr || !IsText(*text)) {
      return fields.Fail(where + ".content", "a part of type text has no text");
    }
  }
}

void CheckMessages(Fields& fields, const report::List& messages) {
  if (messages.empty()) fields.Fail("messages", "the list is empty, expected a message");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "]";
    const auto* message = std::get_if<report::Record>(&messages[i].data);
    if (message == nullptr) {
      return fields.Fail(where, std::string("found ") + KindName(messages[i]) +
                                    ", expected an object with role and content");
    }
    const report::Value* role = message->Find("role");
    if (role == nullptr || !IsText(*role)) {
      return fields.Fail(where + ".role", "expected a text such as \"user\"");
    }
    if (const report::Value* content = message->Find("content")) {
      CheckContent(fields, where, *content);
    } else if (message->Find("tool_calls") == nullptr) {
      fields.Fail(where + ".content", "is missing");
    }
  }
}

void CheckTools(Fields& fields, const report::List& tools) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = "tools[" + std::to_string(i) + "]";
    const auto* tool = std::get_if<report::Record>(&tools[i].data);
    const report::Value* function = tool == nullptr ? nullptr : tool->Find("function");
    const auto* record =
        function == nullptr ? nullptr : std::get_if<report::Record>(&function->data);
    const report::Value* name = record == nullptr ? nullptr : record->Find("name");
    if (name == nullptr || !IsText(*name)) {
      return fields.Fail(where, "expected {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
  }
}

}  // namespace

std::vector<PromptText> ReadPrompts(Fields& fields, const tokenizer::Tokenizer& tokenizer,
                                    std::span<const tokenizer::TokenId> before) {
  const PromptReader reader(fields, tokenizer, before);
  const report::Value* value = fields.Find("prompt");
  if (value == nullptr) {
    fields.Fail("prompt", "is missing", "missing_required_parameter");
    return {};
  }
  std::vector<PromptText> prompts;
  if (const auto* text = std::get_if<std::string>(&value->data)) {
    prompts.push_back(reader.FromText(*text));
  } else if (const auto* list = std::get_if<report::List>(&value->data)) {
    const auto all = [list](bool (*is)(const report::Value&)) {
      return std::all_of(list->begin(), list->end(), is);
    };
    const bool is_batch = !list->empty() && (all(IsText) || all(IsList));
    if (is_batch && list->size() > kMaxPrompts) {
      fields.Fail("prompt", "found " + std::to_string(list->size()) +
                                " prompts, expected at most " + std::to_string(kMaxPrompts));
      return {};
    }
    if (!is_batch) {
      prompts.push_back(reader.FromList(*list));
    } else {
      for (const report::Value& item : *list) {
        prompts.push_back(IsText(item) ? reader.FromText(std::get<std::string>(item.data))
                                       : reader.FromList(std::get<report::List>(item.data)));
      }
    }
  } else {
    fields.Fail("prompt", std::string("found ") + KindName(*value) +
                              ", expected a text, a list of token ids, or a list of those");
    return {};
  }
  for (const PromptText& prompt : prompts) {
    if (prompt.tokens.size() == before.size()) fields.Fail("prompt", "is empty");
  }
  return prompts;
}

nlohmann::ordered_json ReadTools(Fields& fields) {
  const report::List* tools = fields.Array("tools");
  if (tools == nullptr || tools->empty()) return nullptr;
  CheckTools(fields, *tools);
  return JsonFrom(*tools);
}

nlohmann::ordered_json ReadTemplateVariables(Fields& fields, const report::Record& variables) {
  nlohmann::ordered_json all;
  if (!variables.fields.empty()) all = JsonFrom(variables);
  if (const report::Record* own = fields.Object("chat_template_kwargs")) {
    if (all.is_null()) all = nlohmann::ordered_json::object();
    all.update(JsonFrom(*own));
  }
  return all;
}

chat::Conversation ReadConversation(Fields& fields, const report::Record& variables) {
  chat::Conversation out;
  const report::List* messages = fields.Array("messages");
  if (messages == nullptr) {
    fields.Fail("messages", "is missing, expected a list of messages",
                "missing_required_parameter");
    return out;
  }
  CheckMessages(fields, *messages);
  out.tools = ReadTools(fields);
  out.variables = ReadTemplateVariables(fields, variables);
  out.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
  out.continue_final_message = fields.Bool("continue_final_message").value_or(false);
  if (!fields.ok()) return out;
  out.messages = JsonFrom(*messages);
  // An assistant message at the end is continued, as llama-server does.
  const auto& last = out.messages.back();
  const bool has_calls = last.contains("tool_calls") && !last["tool_calls"].empty();
  if (last["role"] == "assistant" && !has_calls && out.add_generation_prompt) {
    out.continue_final_message = true;
  }
  return out;
}

nlohmann::ordered_json JsonFrom(const report::Value& value) {
  using Json = nlohmann::ordered_json;
  struct Visitor {
    Json operator()(std::monostate) const { return nullptr; }
    Json operator()(bool v) const { return v; }
    Json operator()(int64_t v) const { return v; }
    Json operator()(double v) const { return v; }
    Json operator()(const std::string& v) const { return v; }
    Json operator()(const report::List& list) const {
      Json out = Json::array();
      for (const report::Value& item : list) out.push_back(JsonFrom(item));
      return out;
    }
    Json operator()(const report::Record& record) const {
      // Append directly: ordered_json's operator[] searches all names for each new one.
      Json::object_t object;
      object.reserve(record.fields.size());
      for (const report::Field& field : record.fields) {
        object.emplace_back(field.name, JsonFrom(field.value));
      }
      return object;
    }
  };
  return std::visit(Visitor(), value.data);
}

}  // namespace winnow::server

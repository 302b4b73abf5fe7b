#include "transcript.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/output_file.h"
#include "report/parse_json.h"
#include "text_input.h"

namespace winnow::apps {
namespace {

constexpr const char* kMark = "winnow_transcript";
constexpr int kVersion = 1;

std::string TextIn(const report::Record& record, std::string_view name) {
  const report::Value* value = record.Find(name);
  const std::string* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  return text == nullptr ? "" : *text;
}

}  // namespace

std::vector<ChatMessage> MessagesIn(const report::Record& record) {
  std::vector<ChatMessage> messages;
  const report::Value* value = record.Find("messages");
  const report::List* list = value == nullptr ? nullptr : std::get_if<report::List>(&value->data);
  if (list == nullptr) return messages;
  for (const report::Value& item : *list) {
    if (const auto* message = std::get_if<report::Record>(&item.data)) {
      messages.push_back({TextIn(*message, "role"), TextIn(*message, "content")});
    }
  }
  return messages;
}

Result<std::vector<ChatMessage>> ReadTranscript(const std::string& path) {
  WINNOW_ASSIGN(const std::string text, ReadFile(path));
  const auto json = report::ParseJson(text);
  const report::Record* record = json ? std::get_if<report::Record>(&json->data) : nullptr;
  if (record == nullptr || record->Find(kMark) == nullptr) {
    return Error{path + ": is not a transcript that /save wrote (JSON with \"" + kMark + "\")"};
  }
  std::vector<ChatMessage> messages = MessagesIn(*record);
  for (const ChatMessage& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      return Error{path + ": found a message of '" + message.role +
                   "', expected system, user or assistant"};
    }
  }
  return messages;
}

Result<void> WriteTranscript(const std::string& path, std::span<const ChatMessage> messages) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !ReadTranscript(path)) {
    return Error{path + ": exists and is not a transcript; it was not changed, name another file"};
  }
  report::List list;
  for (const ChatMessage& message : messages) {
    list.emplace_back(report::Record{{"role", message.role}, {"content", message.content}});
  }
  const report::Record record = {{kMark, kVersion}, {"messages", std::move(list)}};
  return WriteWholeFile(path, report::ToJson(record, 1) + "\n");
}

}  // namespace winnow::apps

#pragma once

#include <span>
#include <string_view>

namespace winnow::tokenizer {

// How a turn of one role is written: before + content + after.
struct ChatTurn {
  std::string_view before = {};
  std::string_view after = {};
  std::string_view between = {};  // precedes `before`, except in the first turn
};

// Where the system message goes.
enum class SystemPlace {
  kOwnTurn,
  kPrefixesUserTurn,  // into the first user turn; the system `before` replaces that of the user
};

// The roles whose contents are stripped of surrounding white space.
enum class Trim { kNone, kAssistant, kAll };

struct ChatFormat {
  std::string_view name;
  std::string_view opening = {};  // begins every prompt
  ChatTurn system = {};
  ChatTurn user = {};
  ChatTurn assistant = {};
  std::string_view answer = {};  // precedes the response to generate
  SystemPlace place = SystemPlace::kOwnTurn;
  Trim trim = Trim::kNone;
};

// Sorted by name.
std::span<const ChatFormat> ChatFormats();

}  // namespace winnow::tokenizer

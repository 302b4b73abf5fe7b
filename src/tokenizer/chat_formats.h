#pragma once

#include <span>
#include <string_view>

namespace winnow::tokenizer {

// How one role's turn is written: before + content + after.
struct ChatTurn {
  std::string_view before = {};
  std::string_view after = {};
  std::string_view between = {};  // ahead of `before`, unless the turn is the conversation's first
};

// Where the system's words go.
enum class SystemPlace {
  kOwnTurn,
  kOpensUser,  // into the first user turn, whose `before` is then left out: the system's stands for
               // it
};

// Whose contents lose the white space around them.
enum class Trim { kNone, kAssistant, kAll };

struct ChatFormat {
  std::string_view name;
  std::string_view opening = {};  // ahead of everything
  ChatTurn system = {};
  ChatTurn user = {};
  ChatTurn assistant = {};
  std::string_view answer = {};  // what the assistant's answer comes behind
  SystemPlace place = SystemPlace::kOwnTurn;
  Trim trim = Trim::kNone;
};

// Sorted by name.
std::span<const ChatFormat> ChatFormats();

}  // namespace winnow::tokenizer

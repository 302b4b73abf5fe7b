#include "chat/call_scanner.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "chat/json_spaces.h"

namespace winnow::chat {
namespace {

// Decodes a quoted JSON string. If it is invalid, only removes the quotes.
std::string Decoded(const std::string& quoted) {
  const auto parsed = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_string()) return parsed.get<std::string>();
  return quoted.size() >= 2 ? quoted.substr(1, quoted.size() - 2) : quoted;
}

bool IsArguments(const std::string& key) { return key == "arguments" || key == "parameters"; }

}  // namespace

CallScanner::State CallScanner::state() const {
  return at_ == At::kEnd ? State::kDone : at_ == At::kFailed ? State::kNoObject : State::kOpen;
}

std::string CallScanner::TakeArguments() { return std::exchange(arguments_, {}); }

void CallScanner::StartValue(char c) {
  at_ = At::kInValue;
  piece_.clear();
  depth_ = 0;
  in_string_ = is_string_ = c == '"';
  escaped_ = false;
  if (c == '{' || c == '[') depth_ = 1;
  if (IsArguments(key_)) has_arguments_ = true;
  piece_ += c;
  if (IsArguments(key_) && !is_string_) arguments_ += c;
}

void CallScanner::FinishValue() {
  if (is_string_) {
    if (key_ == "name") {
      name_ = Decoded(piece_);
      has_name_ = !name_.empty();
    } else if (key_ == "id") {
      id_ = Decoded(piece_);
    } else if (IsArguments(key_)) {
      arguments_ += Decoded(piece_);  // JSON within a string, as in OpenAI's API
    }
  }
  at_ = At::kComma;
}

CallScanner::State CallScanner::Feed(char c) {
  switch (at_) {
    case At::kStart:
      if (!IsJsonSpace(c)) at_ = c == '{' ? At::kKey : At::kFailed;
      break;
    case At::kKey:
      if (in_string_) {
        piece_ += c;
        if (!escaped_ && c == '"') {
          in_string_ = false;
          key_ = Decoded(piece_);
          at_ = At::kColon;
        }
        escaped_ = !escaped_ && c == '\\';
      } else if (c == '"') {
        piece_ = c;
        in_string_ = true;
        escaped_ = false;
      } else if (!IsJsonSpace(c)) {
        at_ = c == '}' && first_ ? At::kEnd : At::kFailed;
      }
      break;
    case At::kColon:
      if (!IsJsonSpace(c)) at_ = c == ':' ? At::kValue : At::kFailed;
      break;
    case At::kValue:
      if (IsJsonSpace(c)) break;
      if (c == '}' || c == ']' || c == ',' || c == ':') {
        at_ = At::kFailed;
      } else {
        StartValue(c);
      }
      break;
    case At::kInValue: {
      const bool scalar = !is_string_ && depth_ == 0;
      if (scalar && (IsJsonSpace(c) || c == ',' || c == '}')) {
        FinishValue();
        return Feed(c);
      }
      if (key_ == "name" || key_ == "id" || is_string_) piece_ += c;
      if (IsArguments(key_) && !is_string_) arguments_ += c;
      if (in_string_) {
        if (!escaped_ && c == '"') {
          in_string_ = false;
          if (is_string_) FinishValue();
        }
        escaped_ = !escaped_ && c == '\\';
      } else if (c == '"') {
        in_string_ = true;
        escaped_ = false;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if (c == '}' || c == ']') {
        if (--depth_ == 0) FinishValue();
      }
      break;
    }
    case At::kComma:
      if (IsJsonSpace(c)) break;
      first_ = false;
      at_ = c == ',' ? At::kKey : c == '}' ? At::kEnd : At::kFailed;
      break;
    case At::kEnd:
    case At::kFailed:
      break;
  }
  if (at_ == At::kEnd && !has_name_) at_ = At::kFailed;
  return state();
}

}  // namespace winnow::chat

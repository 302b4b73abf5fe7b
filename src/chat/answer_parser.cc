#include "chat/answer_parser.h"

#include <algorithm>
#include <utility>

#include "chat/json_spaces.h"

namespace winnow::chat {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";
constexpr size_t kMaxName = 256;  // before a call's brace; longer names are not calls

size_t SpacesAt(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && IsJsonSpace(text[n])) ++n;
  return n;
}

// Where the white space before `end` begins.
size_t WithoutSpacesBehind(std::string_view text, size_t end) {
  while (end > 0 && IsJsonSpace(text[end - 1])) --end;
  return end;
}

// How many bytes at the end may begin `marker`.
size_t Overlap(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

bool EndsInReasoning(std::string_view prompt) {
  return prompt.substr(0, WithoutSpacesBehind(prompt, prompt.size())).ends_with(kThink);
}

AnswerParser::AnswerParser(const AnswerOptions& options)
    : options_(options), at_(options.starts_in_reasoning ? At::kReasoning : At::kStart) {
  drops_space_ = options.starts_in_reasoning;
}

AnswerDelta AnswerParser::Push(std::string_view text) {
  AnswerDelta delta;
  held_ += text;
  while (Advance(&delta)) {
  }
  return delta;
}

AnswerDelta AnswerParser::Finish() {
  AnswerDelta delta;
  finishing_ = true;
  while (Advance(&delta)) {
  }
  return delta;
}

bool AnswerParser::Advance(AnswerDelta* delta) {
  switch (at_) {
    case At::kStart:
      return AdvanceStart();
    case At::kReasoning:
      return AdvanceReasoning(delta);
    case At::kContent:
      return AdvanceContent(delta);
    case At::kCall:
      return AdvanceCall(delta);
    case At::kArray:
      return AdvanceArray(delta);
    case At::kNamed:
      return AdvanceNamed(delta);
    case At::kAfterCall:
      return AdvanceAfterCall();
  }
  return false;
}

bool AnswerParser::AdvanceStart() {
  const size_t spaces = SpacesAt(held_);
  const std::string_view rest = std::string_view(held_).substr(spaces);
  if (options_.reasoning && rest.starts_with(kThink)) {
    held_.erase(0, spaces + kThink.size());
    at_ = At::kReasoning;
    drops_space_ = true;
    return true;
  }
  if (options_.reasoning && kThink.starts_with(rest) && !finishing_) return false;
  at_ = At::kContent;
  return true;
}

bool AnswerParser::AdvanceReasoning(AnswerDelta* delta) {
  if (drops_space_) {
    held_.erase(0, SpacesAt(held_));
    if (held_.empty()) return false;
    drops_space_ = false;
  }
  const size_t end = held_.find(kThinkEnd);
  const bool found = end != std::string::npos;
  size_t n = found ? end : held_.size() - Overlap(held_, kThinkEnd);
  if (finishing_ && !found) n = held_.size();
  n = WithoutSpacesBehind(held_, n);
  delta->reasoning += held_.substr(0, n);
  held_.erase(0, found ? end + kThinkEnd.size() : finishing_ ? held_.size() : n);
  if (!found) return false;
  at_ = At::kContent;
  drops_space_ = true;
  return true;
}

void AnswerParser::EmitContent(size_t n_bytes, AnswerDelta* delta) {
  if (n_bytes == 0) return;
  fresh_ = false;
  delta->content += held_.substr(0, n_bytes);
  held_.erase(0, n_bytes);
}

bool AnswerParser::AdvanceContent(AnswerDelta* delta) {
  if (drops_space_) {
    held_.erase(0, SpacesAt(held_));
    if (held_.empty()) return false;
    drops_space_ = false;
  }
  const std::string_view marker = CallMarker(options_.tools);
  if (marker.empty()) {
    EmitContent(held_.size(), delta);
    return false;
  }
  const size_t spaces = SpacesAt(held_);
  if (options_.tools == ToolFormat::kLlama3 && fresh_) {
    if (spaces == held_.size() && !finishing_) return false;
    if (spaces < held_.size() && held_[spaces] == '{') {
      StartCall();
      return true;
    }
  }
  const size_t found = held_.find(marker);
  if (found != std::string::npos) {
    EmitContent(WithoutSpacesBehind(held_, found), delta);
    const size_t end = SpacesAt(held_) + marker.size();
    StartCall();
    raw_ = held_.substr(0, end);
    held_.erase(0, end);
    if (options_.tools == ToolFormat::kMistral) at_ = At::kArray;
    return true;
  }
  if (finishing_) {
    EmitContent(held_.size(), delta);
  } else {
    EmitContent(WithoutSpacesBehind(held_, held_.size() - Overlap(held_, marker)), delta);
  }
  return false;
}

void AnswerParser::StartCall() {
  at_ = At::kCall;
  raw_.clear();
  scanner_ = CallScanner();
  sure_ = committed_ = false;
}

void AnswerParser::TakeName() {
  sure_ = true;
  call_name_ = scanner_.name();
  call_id_ = scanner_.id();
}

// Emits what is known of the call and not emitted yet.
void AnswerParser::EmitCall(AnswerDelta* delta) {
  const bool first = !std::exchange(committed_, true);
  std::string arguments = scanner_.TakeArguments();
  if (!first && arguments.empty()) return;
  if (first) ++n_calls_;
  delta->tool_calls.push_back({.index = n_calls_ - 1,
                               .id = first ? call_id_ : "",
                               .name = first ? call_name_ : "",
                               .arguments = std::move(arguments)});
}

// Not a call: emit the first byte as content and parse the rest again.
void AnswerParser::AbandonCall(AnswerDelta* delta) {
  held_.insert(0, raw_);
  raw_.clear();
  in_array_ = false;
  EmitContent(std::min(held_.size(), SpacesAt(held_) + 1), delta);
  at_ = At::kContent;
}

bool AnswerParser::AdvanceCall(AnswerDelta* delta) {
  size_t n = 0;
  while (n < held_.size() && scanner_.state() == CallScanner::State::kOpen) {
    scanner_.Feed(held_[n++]);
    // From here on it is a call with this name and id, whatever follows. In Mistral's arrays the id
    // comes last, so wait for it.
    if (!sure_ && !in_array_ && scanner_.has_name() && scanner_.has_arguments()) TakeName();
  }
  // The byte that does not belong to the call follows it.
  if (sure_ && scanner_.state() == CallScanner::State::kNoObject) --n;
  if (!committed_) raw_ += held_.substr(0, n);
  held_.erase(0, n);
  const CallScanner::State state = scanner_.state();
  const bool done = state == CallScanner::State::kDone;
  const bool named = scanner_.has_name() && (scanner_.has_arguments() || !RequiresArguments());
  const bool broken = state == CallScanner::State::kNoObject;
  if (!sure_ && !broken && (done || finishing_) && named) TakeName();
  if (!sure_ && (broken || done || finishing_)) {
    AbandonCall(delta);
    return true;
  }
  if (sure_) {
    EmitCall(delta);
    if (done && !scanner_.has_arguments()) delta->tool_calls.back().arguments = "{}";
  }
  if (state == CallScanner::State::kOpen) return false;
  raw_.clear();
  at_ = At::kAfterCall;
  return true;
}

bool AnswerParser::AdvanceAfterCall() {
  const size_t spaces = SpacesAt(held_);
  const std::string_view rest = std::string_view(held_).substr(spaces);
  if (rest.empty()) {
    if (finishing_) held_.clear();
    return false;
  }
  const auto next_call = [&](size_t n) {
    StartCall();
    raw_ = held_.substr(0, spaces + n);
    held_.erase(0, spaces + n);
    return true;
  };
  if (in_array_ && rest[0] == ',') return next_call(1);
  if (in_array_ && rest[0] == ']') {
    held_.erase(0, spaces + 1);
    in_array_ = false;
  } else if (options_.tools == ToolFormat::kLlama3 && (rest[0] == ';' || rest[0] == '{')) {
    return next_call(rest[0] == ';' ? 1 : 0);
  } else if (options_.tools == ToolFormat::kHermes) {
    if (rest.starts_with(kCallEnd)) {
      held_.erase(0, spaces + kCallEnd.size());
    } else if (kCallEnd.starts_with(rest) && !finishing_) {
      return false;
    }
  }
  in_array_ = false;
  at_ = At::kContent;
  drops_space_ = true;
  fresh_ = false;
  return true;
}

bool AnswerParser::AdvanceArray(AnswerDelta* delta) {
  const size_t spaces = SpacesAt(held_);
  if (spaces == held_.size()) {
    if (finishing_) AbandonCall(delta);
    return finishing_;
  }
  raw_ += held_.substr(0, spaces);
  held_.erase(0, spaces);
  if (held_[0] == '[') {
    raw_ += '[';
    held_.erase(0, 1);
    in_array_ = true;
    at_ = At::kCall;
    return true;
  }
  if (held_[0] == '{') {
    at_ = At::kCall;
    return true;
  }
  at_ = At::kNamed;
  depth_ = 0;
  in_string_ = escaped_ = false;
  return true;
}

// name[ARGS]{...}, name[CALL_ID]id[ARGS]{...} or name{...}.
bool AnswerParser::AdvanceNamed(AnswerDelta* delta) {
  if (!committed_) {
    const size_t brace = held_.find('{');
    if (brace == std::string::npos && held_.size() <= kMaxName && !finishing_) return false;
    if (brace == std::string::npos || brace > kMaxName) {
      AbandonCall(delta);
      return true;
    }
    std::string name = held_.substr(0, brace);
    std::string id;
    if (const size_t args = name.find(kArgs); args != std::string::npos) name.resize(args);
    if (const size_t at = name.find(kCallId); at != std::string::npos) {
      id = name.substr(at + kCallId.size());
      name.resize(at);
    }
    name.resize(WithoutSpacesBehind(name, name.size()));
    const bool is_name = !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
      return IsJsonSpace(c) || c == '"' || c == '[' || c == ']';
    });
    if (!is_name) {
      AbandonCall(delta);
      return true;
    }
    held_.erase(0, brace);
    raw_.clear();
    committed_ = true;
    delta->tool_calls.push_back({.index = n_calls_++, .id = id, .name = name, .arguments = ""});
  }
  size_t n = 0;
  bool done = false;
  for (; n < held_.size() && !done; ++n) {
    const char c = held_[n];
    if (in_string_) {
      if (!escaped_ && c == '"') in_string_ = false;
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
      escaped_ = false;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      done = --depth_ == 0;
    }
  }
  if (n > 0) {
    const bool same = !delta->tool_calls.empty() && delta->tool_calls.back().index == n_calls_ - 1;
    if (!same)
      delta->tool_calls.push_back({.index = n_calls_ - 1, .id = "", .name = "", .arguments = ""});
    delta->tool_calls.back().arguments += held_.substr(0, n);
    held_.erase(0, n);
  }
  if (done) at_ = At::kAfterCall;
  return done;
}

}  // namespace winnow::chat

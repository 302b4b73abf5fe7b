#include "runtime/store/session_notes.h"

#include <sstream>
#include <string_view>
#include <utility>

namespace winnow::runtime {
namespace {

// Each word is followed by its numbers.
constexpr std::string_view kUnread = "unread", kDocument = "document", kAnswer = "answer",
                           kMessages = "messages";

template <typename T>
std::vector<T> Numbers(std::istream& in) {
  std::vector<T> numbers;
  for (T number = 0; in >> number;) numbers.push_back(number);
  in.clear();
  return numbers;
}

}  // namespace

std::string NotesText(const SessionNotes& notes) {
  const TextOutline& outline = notes.outline;
  std::ostringstream out;
  out << kUnread;
  for (const tokenizer::TokenId token : notes.unread) out << ' ' << token;
  if (outline.n_document > 0) out << ' ' << kDocument << ' ' << outline.n_document;
  if (outline.answer_begins >= 0) {
    out << ' ' << kAnswer << ' ' << outline.answer_begins << ' ' << outline.answer_has_tools << ' '
        << outline.answer_in_reasoning;
  }
  if (!outline.messages.empty()) {
    out << ' ' << kMessages;
    for (const uint64_t message : outline.messages) out << ' ' << message;
  }
  return std::move(out).str();
}

SessionNotes ReadNotes(const std::string& text, int64_t n_tokens, int64_t vocabulary) {
  std::istringstream in(text);
  std::string word;
  SessionNotes notes;
  if (!(in >> word) || word != kUnread) return {};
  notes.unread = Numbers<tokenizer::TokenId>(in);
  for (const tokenizer::TokenId token : notes.unread) {
    if (token < 0 || token >= vocabulary) return {};
  }
  const int64_t n_text = n_tokens + std::ssize(notes.unread);
  const auto is_place = [&](int64_t place) { return place >= 0 && place <= n_text; };
  TextOutline& outline = notes.outline;
  while (in >> word) {
    if (word == kMessages) {
      outline.messages = Numbers<uint64_t>(in);
      continue;
    }
    const std::vector<int64_t> numbers = Numbers<int64_t>(in);
    if (word == kDocument && numbers.size() == 1 && is_place(numbers[0])) {
      outline.n_document = numbers[0];
    } else if (word == kAnswer && numbers.size() == 3 && is_place(numbers[0])) {
      outline.answer_begins = numbers[0];
      outline.answer_has_tools = numbers[1] != 0;
      outline.answer_in_reasoning = numbers[2] != 0;
    }
  }
  return notes;
}

}  // namespace winnow::runtime

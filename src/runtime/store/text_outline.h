#pragma once

#include <cstdint>
#include <vector>

namespace winnow::runtime {

// What the parts of a session's text are, as the client that wrote them says. Kept with the
// session, its copies and its files; the scheduler does not read it.
struct TextOutline {
  int64_t n_document = 0;  // its first tokens are a document
  // Of a chat: hashes of the messages before the last answer, and the token with which that answer
  // begins; -1: no answer was asked for.
  std::vector<uint64_t> messages = {};
  int64_t answer_begins = -1;
  // How the client saw that answer: its calls taken out of the text, and begun in reasoning that
  // the prompt opened.
  bool answer_has_tools = false;
  bool answer_in_reasoning = false;

  bool operator==(const TextOutline&) const = default;
};

}  // namespace winnow::runtime

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/store/text_outline.h"
#include "tokenizer/tokenizer.h"

namespace winnow::runtime {

// What a session's file says about its text in SessionFileInfo::notes.
struct SessionNotes {
  std::vector<tokenizer::TokenId> unread = {};  // IdleSession::unread
  TextOutline outline = {};

  bool operator==(const SessionNotes&) const = default;
};

std::string NotesText(const SessionNotes& notes);

// Of a session that has read n_tokens tokens. What another program wrote, and numbers that cannot
// be, are left out.
SessionNotes ReadNotes(const std::string& text, int64_t n_tokens, int64_t vocabulary);

}  // namespace winnow::runtime

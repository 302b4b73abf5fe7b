#include "runtime/store/session_notes.h"

#include <gtest/gtest.h>

#include <limits>

namespace winnow::runtime {
namespace {

TEST(SessionNotesTest, WhatIsWrittenIsRead) {
  for (const SessionNotes& notes :
       {SessionNotes{}, SessionNotes{.unread = {3, 0}}, SessionNotes{.outline = {.n_document = 7}},
        SessionNotes{.unread = {9},
        .outline = {.n_document = 7,
                   .messages = {0, std::numeric_limits<uint64_t>::max()},
                   .answer_begins = 21,
                   .answer_has_tools = true}},
        SessionNotes{.outline = {.messages = {5}}},
        SessionNotes{.outline = {.answer_begins = 0, .answer_in_reasoning = true}}}) {
    const std::string text = NotesText(notes);
    EXPECT_EQ(ReadNotes(text, 20, 10), notes) << text;
  }
}

TEST(SessionNotesTest, WhatCannotBeIsLeftOut) {
  EXPECT_EQ(ReadNotes("", 20, 10), SessionNotes{});
  EXPECT_EQ(ReadNotes("of another program 3", 20, 10), SessionNotes{});
  EXPECT_EQ(ReadNotes("unread 10 document 3", 20, 10), SessionNotes{}) << "no such token";
  for (const char* text : {"unread document 21", "unread document -1", "unread document",
                           "unread document 1 2", "unread answer 21 0 0", "unread answer 3",
                           "unread document 99999999999999999999", "unread other 3", "unread x"}) {
    EXPECT_EQ(ReadNotes(text, 20, 10), SessionNotes{}) << text;
  }
  EXPECT_EQ(ReadNotes("unread other 3 document 4", 20, 10).outline.n_document, 4);
}

}  // namespace
}  // namespace winnow::runtime

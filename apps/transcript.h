#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "report/record.h"
#include "winnow/model.h"

// A conversation as a JSON file: {"winnow_transcript": 1, "messages": [{"role": "user", "content":
// "..."}, ...]}.
namespace winnow::apps {

// Errors: the path holds a file of another kind (which is kept); it cannot be written.
Result<void> WriteTranscript(const std::string& path, std::span<const ChatMessage> messages);
// Errors: the file cannot be read; it is not a transcript (says what is missing).
Result<std::vector<ChatMessage>> ReadTranscript(const std::string& path);

// The messages of a record with such a list; missing fields are empty.
std::vector<ChatMessage> MessagesIn(const report::Record& record);

}  // namespace winnow::apps

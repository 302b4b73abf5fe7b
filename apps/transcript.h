#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "report/record.h"
#include "winnow/model.h"

// A conversation as a file: JSON, {"winnow_transcript": 1, "messages": [{"role": "user",
// "content": "..."}, ...]}.
namespace winnow::apps {

// Errors: there is a file of another kind (it stays as it is), the disk.
Result<void> WriteTranscript(const std::string& path, std::span<const ChatMessage> messages);
// Errors: cannot be read; is no transcript (says what is missing).
Result<std::vector<ChatMessage>> ReadTranscript(const std::string& path);

// The messages of a list of such records; fields that are missing are empty.
std::vector<ChatMessage> MessagesIn(const report::Record& record);

}  // namespace winnow::apps

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Messages typed in earlier chats: a text file with one message per line, oldest first. Line feeds
// and backslashes inside a message are written \n and \\.
namespace winnow::apps {

// $XDG_STATE_HOME/winnow/chat_history, or ~/.local/state/winnow/chat_history; empty without a home.
std::string DefaultHistoryFile();

// Reads the last messages; none if there is no file yet. Truncates a long file to them. Error: the
// file cannot be read.
Result<std::vector<std::string>> ReadHistory(const std::string& path);
// Appends a message. Creates the file and its folder, readable by their owner only. Error: the file
// cannot be written.
Result<void> AppendToHistory(const std::string& path, std::string_view message);

}  // namespace winnow::apps

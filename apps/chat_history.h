#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Messages typed in earlier chats: a text file, a message a line, oldest first. Line feeds and
// backslashes inside a message are written \n and \\.
namespace winnow::apps {

// $XDG_STATE_HOME/winnow/chat_history, else ~/.local/state/winnow/chat_history; empty: there is no
// home.
std::string DefaultHistoryFile();

// The last messages; none where there is no file yet. A file that has grown long is cut to them.
// Error: it cannot be read.
Result<std::vector<std::string>> ReadHistory(const std::string& path);
// Adds a message; makes the file and its folder, readable by their owner only. Error: the disk.
Result<void> AppendToHistory(const std::string& path, std::string_view message);

}  // namespace winnow::apps

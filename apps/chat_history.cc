#include "chat_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/output_file.h"
#include "text_input.h"

namespace winnow::apps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEntriesKept = 1000;
constexpr mode_t kOwnerOnly = 0600;

std::string Escaped(std::string_view message) {
  std::string line;
  for (const char c : message) {
    if (c == '\\') line += '\\';
    if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

std::string Plain(std::string_view line) {
  std::string message;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped) ++i;
    message += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return message;
}

Result<void> Write(const std::string& path, std::string_view text, int flags) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, kOwnerOnly);
  if (file < 0) return Error{path + ": " + std::strerror(errno)};
  const ssize_t n = write(file, text.data(), text.size());
  const int problem = errno;
  close(file);
  if (n != static_cast<ssize_t>(text.size())) {
    return Error{path + ": " + (n < 0 ? std::strerror(problem) : "was not written whole")};
  }
  return {};
}

}  // namespace

std::string DefaultHistoryFile() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    return std::string(state) + "/winnow/chat_history";
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return "";
  return std::string(home) + "/.local/state/winnow/chat_history";
}

Result<std::vector<std::string>> ReadHistory(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::vector<std::string>();
  WINNOW_ASSIGN(const std::string text, ReadFile(path));
  std::vector<std::string> messages;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) messages.push_back(Plain(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  if (messages.size() <= kEntriesKept) return messages;
  const bool is_long = messages.size() > 2 * kEntriesKept;
  messages.erase(messages.begin(), messages.end() - static_cast<ptrdiff_t>(kEntriesKept));
  if (is_long) {
    std::string kept;
    for (const std::string& message : messages) kept += Escaped(message) + "\n";
    WINNOW_TRY(WriteWholeFile(path, kept));
  }
  return messages;
}

Result<void> AppendToHistory(const std::string& path, std::string_view message) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code problem;
  if (!folder.empty()) fs::create_directories(folder, problem);
  if (problem) return Error{folder.string() + ": " + problem.message()};
  return Write(path, Escaped(message) + "\n", O_APPEND);
}

}  // namespace winnow::apps

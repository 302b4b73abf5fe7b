#include <algorithm>
#include <filesystem>
#include <system_error>

#include "line_editor.h"

namespace winnow::apps {
namespace {

namespace fs = std::filesystem;

// Files and folders whose path begins with `typed`.
std::vector<std::string> FilesFrom(std::string_view typed) {
  const size_t slash = typed.rfind('/');
  const std::string folder(slash == std::string_view::npos ? "" : typed.substr(0, slash + 1));
  const std::string name(typed.substr(folder.size()));
  std::vector<std::string> files;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    const std::string file = entry->path().filename().string();
    const bool hidden = file.starts_with('.') && !name.starts_with('.');
    if (!file.starts_with(name) || hidden) continue;
    files.push_back(folder + file + (entry->is_directory(ignored) ? "/" : ""));
  }
  return files;
}

}  // namespace

Completion FindCompletion(std::string_view line, const LineEditor::Options& options) {
  Completion completion;
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    if (!line.starts_with('/')) return completion;
    completion.n_typed = line.size();
    for (const std::string_view command : options.commands) {
      if (command.starts_with(line)) completion.words.emplace_back(command);
    }
  } else {
    const std::string_view command = line.substr(0, space);
    if (std::find(options.take_file.begin(), options.take_file.end(), command) ==
        options.take_file.end()) {
      return completion;
    }
    const std::string_view typed = line.substr(space + 1);
    completion.n_typed = typed.size();
    completion.words = FilesFrom(typed);
  }
  std::sort(completion.words.begin(), completion.words.end());
  return completion;
}

std::string CommonStart(std::span<const std::string> words) {
  std::string start = words.front();
  for (const std::string& word : words) {
    const auto [end, other] = std::mismatch(start.begin(), start.end(), word.begin(), word.end());
    start.erase(end, start.end());
  }
  // Do not cut inside a UTF-8 character.
  while (!start.empty() && start.size() < words.front().size() &&
         (static_cast<unsigned char>(words.front()[start.size()]) & 0xC0) == 0x80) {
    start.pop_back();
  }
  return start;
}

}  // namespace winnow::apps

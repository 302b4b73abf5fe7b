#include "runtime/store/session_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "runtime/store/session_names.h"

namespace winnow::runtime {
namespace {

constexpr std::string_view kEnding = ".session";

std::string FileName(const std::string& name) {
  WINNOW_CHECK(IsSessionName(name));
  return name + std::string(kEnding);
}

// The session in a file of this name. Empty: none.
std::string_view SessionName(std::string_view file) {
  if (!file.ends_with(kEnding)) return {};
  file.remove_suffix(kEnding.size());
  return IsSessionName(file) ? file : std::string_view();
}

}  // namespace

Result<std::unique_ptr<SessionFolder>> SessionFolder::Open(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    return Error{path + ": cannot be used as the folder of sessions: " + std::strerror(errno)};
  }
  return std::unique_ptr<SessionFolder>(new SessionFolder(folder));
}

SessionFolder::~SessionFolder() { close(folder_); }

bool SessionFolder::Has(const std::string& name) const { return FindVersion(name).has_value(); }

std::optional<SessionFolder::Version> SessionFolder::FindVersion(const std::string& name) const {
  constexpr int64_t kNanoseconds = 1'000'000'000;
  struct stat status;
  if (fstatat(folder_, FileName(name).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  return Version{.n_bytes = status.st_size,
                 .changed_ns = status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec,
                 .inode = status.st_ino};
}

void SessionFolder::ForEachFile(const std::function<void(const std::string& file)>& call) const {
  const int copy = openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = copy < 0 ? nullptr : fdopendir(copy);
  if (entries == nullptr) {
    if (copy >= 0) close(copy);
    return;
  }
  while (const dirent* entry = readdir(entries)) {
    struct stat status;
    // Most file systems say what an entry is.
    const bool is_regular = entry->d_type == DT_REG ||
                            (entry->d_type == DT_UNKNOWN &&
                             fstatat(folder_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                             S_ISREG(status.st_mode));
    if (is_regular) call(entry->d_name);
  }
  closedir(entries);
}

std::vector<std::string> SessionFolder::List() const {
  std::vector<std::string> names;
  ForEachFile([&](const std::string& file) {
    const std::string_view name = SessionName(file);
    if (!name.empty()) names.emplace_back(name);
  });
  std::ranges::sort(names);
  return names;
}

int SessionFolder::RemoveAbandoned(std::chrono::seconds min_age) const {
  int n_removed = 0;
  const auto now = std::chrono::system_clock::now();
  ForEachFile([&](const std::string& file) {
    if (SessionName(TargetOfTemporary(file)).empty()) return;
    struct stat status;
    if (fstatat(folder_, file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
    const auto written = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec);
    if (now - written < min_age) return;
    if (unlinkat(folder_, file.c_str(), 0) == 0) ++n_removed;
  });
  return n_removed;
}

Result<SessionInput> SessionFolder::Read(const std::string& name) const {
  const std::string file_name = FileName(name);
  // O_NONBLOCK: a pipe would wait for its writer.
  const int file =
      openat(folder_, file_name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) {
    const bool is_link = errno == ELOOP;
    return Error{file_name + ": cannot be read: " +
                 (is_link ? "is a link, which is not followed" : std::strerror(errno))};
  }
  return SessionInput::FromDescriptor(file, file_name);
}

Result<OutputFile> SessionFolder::Write(const std::string& name) const {
  return OutputFile::CreateIn(folder_, FileName(name));
}

Result<void> SessionFolder::Remove(const std::string& name) const {
  const std::string file_name = FileName(name);
  if (unlinkat(folder_, file_name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return Error{file_name + ": cannot be removed: " + std::strerror(errno)};
}

}  // namespace winnow::runtime

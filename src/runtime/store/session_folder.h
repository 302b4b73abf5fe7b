#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "runtime/store/session_file.h"

namespace winnow::runtime {

// The folder of saved sessions, held open. Session N is the file N.session in it. Nothing outside
// the folder is read or written, and links are not followed. Thread-safe.
//
// Requires of all names: IsSessionName.
class SessionFolder {
 public:
  // Error: not a folder, or cannot be opened.
  static Result<std::unique_ptr<SessionFolder>> Open(const std::string& path);
  ~SessionFolder();
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;

  bool Has(const std::string& name) const;
  // Changes when the content of a file changes; nullopt: there is no regular file of this name.
  struct Version {
    int64_t n_bytes = 0;
    int64_t changed_ns = 0;
    uint64_t inode = 0;
    bool operator==(const Version&) const = default;
  };
  std::optional<Version> FindVersion(const std::string& name) const;
  // Removes temporary files of saves whose process was killed, and returns their number: those that
  // nobody has written to for `min_age`. Younger ones may belong to another process that uses the
  // folder.
  int RemoveAbandoned(std::chrono::seconds min_age) const;
  // Names of all sessions, sorted.
  std::vector<std::string> List() const;
  // Errors: no file of this name; a link; not a regular file.
  Result<SessionInput> Read(const std::string& name) const;
  // Opens a file for writing; it replaces an older one once it is complete. Error: the disk.
  Result<OutputFile> Write(const std::string& name) const;
  // No error if there is no such file. Error: it cannot be removed.
  Result<void> Remove(const std::string& name) const;

 private:
  explicit SessionFolder(int folder) : folder_(folder) {}
  // The regular files in the folder.
  void ForEachFile(const std::function<void(const std::string& file)>& call) const;

  int folder_;
};

}  // namespace winnow::runtime

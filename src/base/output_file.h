#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace winnow {

// Writes a file atomically: data goes to a temporary file in the same folder, and Commit renames it
// over the target. Without Commit the old file stays. Follows symbolic links. A target that is not
// a regular file (a pipe, /dev/null), or whose folder allows no new file, is written in place.
class OutputFile {
 public:
  // Errors: the file cannot be written (says why); nothing is changed then.
  static Result<OutputFile> Create(const std::string& path);
  // The same for a plain name in an open folder, which must outlive the file. Does not follow
  // links: a link of this name is replaced itself.
  static Result<OutputFile> CreateIn(int folder, const std::string& name);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  // Error of all three: the write failed (disk full, I/O error).
  Result<void> Write(std::string_view bytes);
  Result<void> Commit();
  // Commit, plus fsync: after a power failure there is either the old file or the new one.
  Result<void> CommitToDisk();

 private:
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  explicit OutputFile(int folder) : folder_(folder) {}
  Error Failed() const;
  void Discard();

  int folder_;             // folder of the names below; AT_FDCWD: they are paths
  std::string path_;       // as given, for messages
  std::string target_;     // the path with links resolved
  std::string temporary_;  // empty: written in place
  std::unique_ptr<FILE, Close> file_;
};

// Writes a whole file atomically. Errors: those of OutputFile.
Result<void> WriteWholeFile(const std::string& path, std::string_view bytes);

// The target of OutputFile's temporary file of this name, which a killed process leaves behind:
// NAME of .NAME.PID-N.tmp. Empty: it is not the name of one.
std::string_view TargetOfTemporary(std::string_view name);

// Checks that Create would succeed now; changes nothing. Errors: those of Create.
Result<void> CheckWritable(const std::string& path);

}  // namespace winnow

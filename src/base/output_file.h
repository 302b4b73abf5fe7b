#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace winnow {

// A file that appears whole or not at all: it is written beside its place, under a temporary name,
// and Commit puts it there. What stood there before stays until then, and stays for good where
// Commit is never called. Links are followed; what is no regular file (a pipe, /dev/null), and a
// file whose folder takes no other file, is written in place.
class OutputFile {
 public:
  // Errors: cannot be written (says why); nothing is changed.
  static Result<OutputFile> Create(const std::string& path);
  // The same in an open folder, which outlives the file, under a plain name. No link is followed:
  // one of this name is replaced itself.
  static Result<OutputFile> CreateIn(int folder, const std::string& name);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  // Errors: the disk.
  Result<void> Write(std::string_view bytes);
  Result<void> Commit();
  // The same, and what was written is on the disk when it returns: a machine that loses its power
  // has the old file or the new one.
  Result<void> CommitToDisk();

 private:
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  explicit OutputFile(int folder) : folder_(folder) {}
  Error Failed() const;
  void Discard();

  int folder_;             // that the names below are in; AT_FDCWD for paths
  std::string path_;       // as given, for messages
  std::string target_;     // behind all links
  std::string temporary_;  // empty: written in place
  std::unique_ptr<FILE, Close> file_;
};

// Writes a whole file. Errors: the disk.
Result<void> WriteWholeFile(const std::string& path, std::string_view bytes);

// Whether Create would succeed now; changes nothing. Errors: those of Create.
Result<void> CheckWritable(const std::string& path);

}  // namespace winnow

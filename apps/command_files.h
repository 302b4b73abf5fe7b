#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "options.h"

namespace winnow::apps {

// How an output is written.
enum class Output {
  kFile,          // as a whole, at the end
  kFileOrStdout,  // the same; "-" is standard output
  kLines,         // added to
  kHistory,       // added to where that can be done, else the command goes on without
  kPage,          // an HTML file and the folder of its figures (report::Page)
  kFolder,        // a folder that takes .jsonl files
};

// The files a command reads and writes, declared before it works, so that no run destroys what it
// reads, no output replaces another, and one that cannot be written is refused before hours of
// computing instead of after them. Files are told apart by device and inode: links and other
// spellings of a path deceive nobody. Standard input, output and error count where they are files.
class CommandFiles {
 public:
  // `flag` names the file in messages. A folder stands for all that is in it; "-" for nothing.
  void Reads(const std::string& flag, const std::string& path);
  void Reads(const std::string& flag, const std::optional<std::string>& path);
  // The model of -m, and --trace.
  void UsesModel(const ModelFlags& flags);
  void Writes(const std::string& flag, const std::optional<std::string>& path,
              Output kind = Output::kFile);

  // Errors (misuse): two of the files are one; an output is a model.
  Result<void> CheckApart() const;
  // Errors: an output cannot be written. Changes nothing.
  Result<void> CheckWritable() const;
  // Both: an exit code, told of, where the command is over.
  std::optional<int> Refused(const std::string& command) const;

 private:
  // Which file a path leads to, existing or not.
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;   // of the file, or of the folder it would be made in
    std::string name;  // in that folder; empty where the file exists
    bool operator==(const Identity&) const = default;
  };
  struct File {
    std::string flag, path;
    std::optional<Identity> identity;  // none where it cannot be anybody else's file: a device
    bool is_folder = false;
  };
  struct OutputEntry : File {
    Output kind = Output::kFile;
    bool takes_files = false;  // a folder: that of kFolder, or of a page's figures
  };

  static File Find(const std::string& flag, const std::string& path);
  static std::optional<File> Standard(int number, const char* name);
  Result<void> CheckAgainstInputs(const OutputEntry& output) const;
  Result<void> CheckFolder(const OutputEntry& folder) const;

  std::vector<File> inputs_;
  std::vector<OutputEntry> outputs_;
};

// Writes an output of kFileOrStdout. Error: the disk.
Result<void> WriteFileOrStdout(const std::string& path, const std::string& text);

}  // namespace winnow::apps

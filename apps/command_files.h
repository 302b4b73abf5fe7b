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
  kFileOrStdout,  // as kFile; "-" is standard output
  kLines,         // lines are appended
  kHistory,       // lines are appended; if that fails, the command continues without
  kPage,          // an HTML file and its folder of figures (report::Page)
  kFolder,        // a folder that receives .jsonl files
};

// The files a command reads and writes, declared before it starts. Checks that no output overwrites
// an input or another output, and that every output can be written, before hours of computing
// rather than after. Files are identified by device and inode, so links and different spellings of
// a path are recognized. Standard input, output and error are included if they are files.
class CommandFiles {
 public:
  // `flag` names the file in messages. A folder covers all files in it; "-" is ignored.
  void Reads(const std::string& flag, const std::string& path);
  void Reads(const std::string& flag, const std::optional<std::string>& path);
  // Declares the model of -m and the output of --trace.
  void UsesModel(const ModelFlags& flags);
  void Writes(const std::string& flag, const std::optional<std::string>& path,
              Output kind = Output::kFile);

  // Errors (misuse): two outputs are the same file, or an output is an input or a model.
  Result<void> CheckDistinct() const;
  // Error: an output cannot be written. Changes nothing.
  Result<void> CheckWritable() const;
  // Runs both checks. Prints an error and returns an exit code if one fails.
  std::optional<int> Refused(const std::string& command) const;

 private:
  // The file that a path leads to, existing or not.
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;   // of the file, or of the folder it would be created in
    std::string name;  // name in that folder; empty if the file exists
    bool operator==(const Identity&) const = default;
  };
  struct File {
    std::string flag, path;
    std::optional<Identity> identity;  // none for a device, which cannot be another file
    bool is_folder = false;
  };
  struct OutputEntry : File {
    Output kind = Output::kFile;
    bool takes_files = false;  // the folder of kFolder, or that of a page's figures
  };

  static File Find(const std::string& flag, const std::string& path);
  static std::optional<File> Standard(int number, const char* name);
  Result<void> CheckAgainstInputs(const OutputEntry& output) const;
  Result<void> CheckFolder(const OutputEntry& folder) const;

  std::vector<File> inputs_;
  std::vector<OutputEntry> outputs_;
};

// Writes an output of kFileOrStdout. Error: it cannot be written.
Result<void> WriteFileOrStdout(const std::string& path, const std::string& text);

}  // namespace winnow::apps

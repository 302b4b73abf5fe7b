#include "command_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/output_file.h"
#include "report/page/page.h"

namespace winnow::apps {
namespace {

namespace fs = std::filesystem;

bool BeginsAsModel(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> magic = {};
  file.read(magic.data(), magic.size());
  return file && std::string_view(magic.data(), magic.size()) == "GGUF";
}

// Whether the file is one that --results wrote. Data sets may be in the same folder, and tasks skip
// its lines.
bool HoldsResults(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  return !file || !std::getline(file, line) || line.find("\"fingerprint\"") != std::string::npos;
}

// Whether `path` lies in `folder` or one of its subfolders.
bool IsInside(const std::string& path, const std::string& folder) {
  std::error_code problem;
  const fs::path inner = fs::weakly_canonical(fs::absolute(path, problem), problem);
  const fs::path outer = fs::weakly_canonical(fs::absolute(folder, problem), problem);
  if (problem) return false;
  const fs::path way = inner.lexically_relative(outer);
  return !way.empty() && way != "." && *way.begin() != "..";
}

// Whether an output folder of this kind could receive a file of this name.
bool CouldBeReplacedIn(Output folder, const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  if (folder == Output::kFolder) return ending == ".jsonl";
  return ending == ".svg" || ending == ".csv" || ending == ".json";
}

Error CannotWrite(const std::string& flag, const std::string& path, const std::string& reason) {
  return Error{flag + " " + path + ": cannot be written: " + reason};
}

// Checks that a folder is writable, or can be created.
Result<void> CheckFolderWritable(const std::string& flag, const std::string& path) {
  std::error_code problem;
  fs::path place = fs::path(path).lexically_normal();
  if (!fs::exists(place, problem)) {
    while (!place.empty() && !fs::exists(place, problem)) {
      const fs::path above = place.parent_path();
      if (above == place) break;
      place = above;
    }
    if (place.empty()) place = ".";
  }
  if (!fs::is_directory(place, problem)) {
    return CannotWrite(flag, path, place.string() + " is a file, expected a folder");
  }
  if (access(place.c_str(), W_OK | X_OK) != 0) {
    return CannotWrite(flag, path, place.string() + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace

CommandFiles::File CommandFiles::Find(const std::string& flag, const std::string& path) {
  File file{.flag = flag, .path = path, .identity = {}, .is_folder = false};
  struct stat status;
  if (stat(path.c_str(), &status) == 0) {
    file.is_folder = S_ISDIR(status.st_mode);
    if (file.is_folder || S_ISREG(status.st_mode)) {
      file.identity = Identity{status.st_dev, status.st_ino, ""};
    }
    return file;
  }
  std::error_code problem;
  // Resolves links even if their target does not exist.
  const fs::path place = fs::weakly_canonical(fs::absolute(path, problem), problem);
  if (!problem && stat(place.parent_path().c_str(), &status) == 0) {
    file.identity = Identity{status.st_dev, status.st_ino, place.filename().string()};
  }
  return file;
}

std::optional<CommandFiles::File> CommandFiles::Standard(int number, const char* name) {
  struct stat status;
  if (fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return File{name, "", Identity{status.st_dev, status.st_ino, ""}, false};
}

void CommandFiles::Reads(const std::string& flag, const std::string& path) {
  if (!path.empty() && path != "-") inputs_.push_back(Find(flag, path));
}

void CommandFiles::Reads(const std::string& flag, const std::optional<std::string>& path) {
  if (path) Reads(flag, *path);
}

void CommandFiles::UsesModel(const ModelFlags& flags) {
  if (flags.model != kBundled) Reads("-m", flags.model);
  Writes("--trace", flags.kv.trace);
}

void CommandFiles::Writes(const std::string& flag, const std::optional<std::string>& path,
                          Output kind) {
  if (!path || (*path == "-" && kind == Output::kFileOrStdout)) return;
  OutputEntry output;
  static_cast<File&>(output) = Find(flag, *path);
  output.kind = kind;
  output.takes_files = kind == Output::kFolder;
  outputs_.push_back(output);
  if (kind != Output::kPage) return;
  OutputEntry folder;
  static_cast<File&>(folder) = Find(flag, report::Page::FigureFolder(*path));
  folder.kind = Output::kPage;
  folder.takes_files = true;
  outputs_.push_back(folder);
}

Result<void> CommandFiles::CheckAgainstInputs(const OutputEntry& output) const {
  std::vector<File> inputs = inputs_;
  if (const auto standard = Standard(STDIN_FILENO, "standard input")) inputs.push_back(*standard);
  for (const File& input : inputs) {
    if (output.identity && output.identity == input.identity) {
      return Error{output.flag + " " + output.path + ": is what " + input.flag +
                   " reads; choose another file"};
    }
    const bool adds_to_results = output.kind == Output::kLines && HoldsResults(output.path);
    if (input.is_folder && !adds_to_results && IsInside(output.path, input.path)) {
      return Error{output.flag + " " + output.path + ": lies in the folder that " + input.flag +
                   " reads; choose a place outside it"};
    }
  }
  return {};
}

// Checks that no other file of the command has a name that could be written into the folder.
Result<void> CommandFiles::CheckFolder(const OutputEntry& folder) const {
  const auto check = [&](const File& file) -> Result<void> {
    if (&file == &folder || !IsInside(file.path, folder.path) ||
        !CouldBeReplacedIn(folder.kind, file.path)) {
      return {};
    }
    return Error{folder.flag + ": writes into the folder " + folder.path + ", where " + file.flag +
                 " " + file.path + " could be replaced; choose another name for one of them"};
  };
  for (const File& input : inputs_) WINNOW_TRY(check(input));
  for (const OutputEntry& output : outputs_) WINNOW_TRY(check(output));
  return {};
}

Result<void> CommandFiles::CheckDistinct() const {
  std::vector<File> others;
  for (const auto& standard :
       {Standard(STDOUT_FILENO, "standard output"), Standard(STDERR_FILENO, "standard error")}) {
    if (standard) others.push_back(*standard);
  }
  for (const OutputEntry& output : outputs_) {
    if (output.path == "-") return Error{output.flag + ": '-' is not a file here; give a name"};
    WINNOW_TRY(CheckAgainstInputs(output));
    for (const File& other : others) {
      if (!output.identity || output.identity != other.identity) continue;
      return Error{output.flag + " " + output.path + ": is also where " + other.flag +
                   (other.path.empty() ? " goes" : " writes") + "; choose another file"};
    }
    others.push_back(output);
    if (output.takes_files) {
      WINNOW_TRY(CheckFolder(output));
    } else if (output.identity && output.identity->name.empty() && BeginsAsModel(output.path)) {
      return Error{output.flag + " " + output.path +
                   ": is a model, which would be overwritten; choose another file"};
    }
  }
  return {};
}

Result<void> CommandFiles::CheckWritable() const {
  for (const OutputEntry& output : outputs_) {
    if (output.kind == Output::kHistory) continue;
    if (output.takes_files) {
      WINNOW_TRY(CheckFolderWritable(output.flag, output.path));
    } else if (const auto writable = winnow::CheckWritable(output.path); !writable) {
      return Error{output.flag + " " + writable.error().message};
    }
  }
  return {};
}

std::optional<int> CommandFiles::Refused(const std::string& command) const {
  if (const auto apart = CheckDistinct(); !apart) return Misuse(command, apart.error().message);
  if (const auto writable = CheckWritable(); !writable) return Fail(writable.error());
  return std::nullopt;
}

Result<void> WriteFileOrStdout(const std::string& path, const std::string& text) {
  if (path != "-") return WriteWholeFile(path, text);
  Print(text);
  return {};
}

}  // namespace winnow::apps

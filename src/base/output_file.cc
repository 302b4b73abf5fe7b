#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace winnow {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;          // the kernel's limit
constexpr size_t kMaxNameBytes = 200;  // of the target's name in the name of a temporary file
constexpr std::string_view kTemporary = ".tmp";

Error CannotWrite(const std::string& path, int problem) {
  return {.message = path + ": cannot be written: " + std::strerror(problem),
          .code = ErrorCode::kFile};
}

// Resolves all links. The file at the end need not exist.
std::string ResolveLinks(const std::string& path) {
  fs::path target = path;
  std::error_code problem;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(target, problem); ++i) {
    const fs::path next = fs::read_symlink(target, problem);
    if (problem) break;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target.string();
}

// Creates a new file in target's folder and returns its descriptor and name. Negative: failed, see
// errno.
int OpenTemporaryBeside(int folder, const std::string& target, std::string& name) {
  const fs::path path(target);
  const std::string stem =
      "." + path.filename().string().substr(0, kMaxNameBytes) + "." + std::to_string(getpid());
  for (int i = 0;; ++i) {
    name =
        (path.parent_path() / (stem + "-" + std::to_string(i) + std::string(kTemporary))).string();
    const int file = openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
}

// The target of an output.
struct Place {
  std::string target;
  bool exists = false;
  bool regular = true;
  mode_t mode = 0;
};

Result<Place> FindPlace(const std::string& path) {
  if (path.empty()) return Error{"an output has no name"};
  Place place{.target = ResolveLinks(path)};
  struct stat status;
  if (stat(place.target.c_str(), &status) != 0) {
    if (errno != ENOENT) return CannotWrite(path, errno);
    return place;
  }
  place.exists = true;
  place.regular = S_ISREG(status.st_mode);
  place.mode = status.st_mode & 07777;
  if (S_ISDIR(status.st_mode)) return CannotWrite(path, EISDIR);
  if (access(place.target.c_str(), W_OK) != 0) return CannotWrite(path, errno);
  return place;
}

// Copies the content of `from` into the file `to`, for a `to` that cannot be replaced (a mount
// point).
bool CopyInPlace(const std::string& from, const std::string& to) {
  std::error_code problem;
  return fs::copy_file(from, to, fs::copy_options::overwrite_existing, problem) && !problem;
}

}  // namespace

Result<OutputFile> OutputFile::Create(const std::string& path) {
  WINNOW_ASSIGN(Place place, FindPlace(path));
  OutputFile output(AT_FDCWD);
  output.path_ = path;
  output.target_ = std::move(place.target);
  int file = -1;
  if (place.regular) {
    file = OpenTemporaryBeside(AT_FDCWD, output.target_, output.temporary_);
    if (file < 0 && !place.exists) {
      const int problem = errno;
      output.temporary_.clear();  // do not remove another's file
      return CannotWrite(path, problem);
    }
    if (file >= 0 && place.exists) (void)!fchmod(file, place.mode);
  }
  if (file < 0) {
    output.temporary_.clear();
    file = open(output.target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return CannotWrite(path, errno);
  }
  output.file_.reset(fdopen(file, "wb"));
  if (!output.file_) {
    const int problem = errno;
    close(file);
    return CannotWrite(path, problem);
  }
  return output;
}

Result<OutputFile> OutputFile::CreateIn(int folder, const std::string& name) {
  OutputFile output(folder);
  output.path_ = name;
  output.target_ = name;
  const int file = OpenTemporaryBeside(folder, name, output.temporary_);
  if (file < 0) {
    const int problem = errno;
    output.temporary_.clear();
    return CannotWrite(name, problem);
  }
  output.file_.reset(fdopen(file, "wb"));
  if (output.file_) return output;
  const int problem = errno;
  close(file);
  return CannotWrite(name, problem);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : folder_(other.folder_),
      path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  Discard();
  folder_ = other.folder_;
  path_ = std::move(other.path_);
  target_ = std::move(other.target_);
  temporary_ = std::exchange(other.temporary_, {});
  file_ = std::move(other.file_);
  return *this;
}

OutputFile::~OutputFile() { Discard(); }

void OutputFile::Discard() {
  file_.reset();
  if (!temporary_.empty()) unlinkat(folder_, temporary_.c_str(), 0);
  temporary_.clear();
}

Error OutputFile::Failed() const {
  return {.message = path_ + ": writing failed: " + std::strerror(errno), .code = ErrorCode::kFile};
}

Result<void> OutputFile::Write(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) return Failed();
  return {};
}

Result<void> OutputFile::Commit() {
  if (std::fflush(file_.get()) != 0) return Failed();
  if (temporary_.empty()) {
    // Cut off the rest of a longer old file. Pipes and devices have no length.
    const off_t end = lseek(fileno(file_.get()), 0, SEEK_CUR);
    struct stat status;
    const bool regular = fstat(fileno(file_.get()), &status) == 0 && S_ISREG(status.st_mode);
    if (regular && end >= 0 && ftruncate(fileno(file_.get()), end) != 0) return Failed();
  }
  if (std::fclose(file_.release()) != 0) return Failed();
  if (temporary_.empty()) return {};
  if (renameat(folder_, temporary_.c_str(), folder_, target_.c_str()) == 0) {
    temporary_.clear();
    return {};
  }
  const int problem = errno;
  if (folder_ != AT_FDCWD || !CopyInPlace(temporary_, target_)) return CannotWrite(path_, problem);
  Discard();
  return {};
}

Result<void> OutputFile::CommitToDisk() {
  if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0) return Failed();
  const std::string folder = fs::path(target_).parent_path().string();
  WINNOW_TRY(Commit());
  if (folder_ != AT_FDCWD) {
    (void)!fsync(folder_);
    return {};
  }
  // Sync the folder, which holds the name. Ignore errors: some folders cannot be opened or synced.
  const int directory = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory < 0) return {};
  (void)!fsync(directory);
  close(directory);
  return {};
}

Result<void> WriteWholeFile(const std::string& path, std::string_view bytes) {
  WINNOW_ASSIGN(OutputFile file, OutputFile::Create(path));
  WINNOW_TRY(file.Write(bytes));
  return file.Commit();
}

std::string_view TargetOfTemporary(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kTemporary)) return {};
  if (name.size() <= kTemporary.size()) return {};  // ".tmp" is no such name
  name.remove_prefix(1);
  name.remove_suffix(kTemporary.size());
  // False: the name does not end with `mark` and digits, which are cut off.
  const auto cut = [&](char mark) {
    const size_t place = name.find_last_not_of("0123456789");
    if (place == std::string_view::npos || place + 1 == name.size() || name[place] != mark) {
      return false;
    }
    name = name.substr(0, place);
    return true;
  };
  return cut('-') && cut('.') ? name : std::string_view();
}

Result<void> CheckWritable(const std::string& path) {
  WINNOW_ASSIGN(const Place place, FindPlace(path));
  if (!place.regular) return {};  // opening a pipe would wait for its reader
  WINNOW_TRY(OutputFile::Create(path));
  return {};
}

}  // namespace winnow

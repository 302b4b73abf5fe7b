#include "gguf/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace winnow::gguf {
namespace {

// Alignment of copies; enough for every vector instruction. Mappings are page-aligned.
constexpr std::align_val_t kAlignment{64};

// Closes a file descriptor at the end of its scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

Error SystemError(const std::string& path, const char* action) {
  return {.message = path + ": cannot " + action + ": " + std::strerror(errno),
          .code = ErrorCode::kFile};
}

}  // namespace

Result<std::unique_ptr<const Mapping>> Mapping::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer. Has no effect on regular files.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return SystemError(path, "open");
  struct stat status;
  if (fstat(file.fd, &status) != 0) return SystemError(path, "read");
  if (S_ISDIR(status.st_mode)) {
    return Error{.message = path + ": is a directory, a .gguf file expected",
                 .code = ErrorCode::kFile};
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{.message = path + ": is not a regular file", .code = ErrorCode::kFile};
  }
  if (status.st_size == 0) return Error{path + ": is empty"};
  const auto n_bytes = static_cast<size_t>(status.st_size);
  void* start = mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (start == MAP_FAILED) return SystemError(path, "map");
  // The whole model will be read soon: let the kernel start reading ahead. This is only advice, so
  // failure is ignored.
  madvise(start, n_bytes, MADV_WILLNEED);
  return std::unique_ptr<const Mapping>(
      new Mapping({static_cast<std::byte*>(start), n_bytes}, Owner::kSystem));
}

std::unique_ptr<const Mapping> Mapping::Copy(std::span<const std::byte> bytes) {
  auto* start = static_cast<std::byte*>(operator new(bytes.size(), kAlignment));
  std::copy(bytes.begin(), bytes.end(), start);
  return std::unique_ptr<const Mapping>(new Mapping({start, bytes.size()}, Owner::kHeap));
}

std::unique_ptr<const Mapping> Mapping::View(std::span<const std::byte> bytes) {
  return std::unique_ptr<const Mapping>(new Mapping(bytes, Owner::kOther));
}

Mapping::~Mapping() {
  auto* start = const_cast<std::byte*>(bytes_.data());  // munmap and delete take a mutable pointer
  if (owner_ == Owner::kSystem) munmap(start, bytes_.size());
  if (owner_ == Owner::kHeap) operator delete(start, kAlignment);
}

}  // namespace winnow::gguf

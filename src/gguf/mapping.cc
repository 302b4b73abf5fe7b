#include "gguf/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace winnow::gguf {
namespace {

Error SystemError(const char* doing) {
  return Error{std::string("cannot be ") + doing + ": " + std::generic_category().message(errno)};
}

}  // namespace

Result<std::unique_ptr<Mapping>> Mapping::OpenFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return SystemError("opened");
  struct stat status = {};
  const bool known = fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode) || status.st_size == 0) {
    const Error error =
        !known ? SystemError("examined")
               : Error{S_ISDIR(status.st_mode)    ? "is a directory, expected a GGUF file"
                       : !S_ISREG(status.st_mode) ? "is not a regular file, expected a GGUF file"
                                                  : "is empty, expected a GGUF file"};
    close(descriptor);
    return error;
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const Error failed = SystemError("mapped");
  close(descriptor);  // the mapping stays
  if (address == MAP_FAILED) return failed;
  auto mapping = std::unique_ptr<Mapping>(new Mapping);
  mapping->bytes_ = {static_cast<const std::byte*>(address), size};
  mapping->mapped_ = true;
  return mapping;
}

std::unique_ptr<Mapping> Mapping::Copy(std::span<const std::byte> bytes) {
  auto mapping = std::unique_ptr<Mapping>(new Mapping);
  mapping->copy_ = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), mapping->copy_.get());
  mapping->bytes_ = {mapping->copy_.get(), bytes.size()};
  return mapping;
}

Mapping::~Mapping() {
  if (mapped_) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace winnow::gguf

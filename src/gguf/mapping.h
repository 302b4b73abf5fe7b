#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace winnow::gguf {

// The bytes of one file, mapped read-only, or an aligned copy of bytes in memory. The mapping is
// private, but pages that were not read yet still come from the file: one that another program
// shortens meanwhile ends the process.
class Mapping {
 public:
  // Errors: cannot be opened, not a regular file, empty; all name the path.
  static Result<std::unique_ptr<const Mapping>> Open(const std::string& path);
  static std::unique_ptr<const Mapping> Copy(std::span<const std::byte> bytes);

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  Mapping(std::span<std::byte> bytes, bool is_mapped) : bytes_(bytes), is_mapped_(is_mapped) {}

  std::span<std::byte> bytes_;
  bool is_mapped_;  // otherwise allocated
};

}  // namespace winnow::gguf

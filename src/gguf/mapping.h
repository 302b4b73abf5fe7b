#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace winnow::gguf {

// The bytes of one file: mapped read-only, an aligned copy, or a view of memory owned by the
// caller. The mapping is private, but pages that were not read yet still come from the file: if
// another program truncates it, the process receives SIGBUS.
class Mapping {
 public:
  // Errors: cannot be opened, not a regular file, empty; all name the path.
  static Result<std::unique_ptr<const Mapping>> Open(const std::string& path);
  static std::unique_ptr<const Mapping> Copy(std::span<const std::byte> bytes);
  // Requires: the bytes outlive the mapping.
  static std::unique_ptr<const Mapping> View(std::span<const std::byte> bytes);

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  enum class Owner { kSystem, kHeap, kOther };
  Mapping(std::span<const std::byte> bytes, Owner owner) : bytes_(bytes), owner_(owner) {}

  std::span<const std::byte> bytes_;
  Owner owner_;
};

}  // namespace winnow::gguf

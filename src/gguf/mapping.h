#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace winnow::gguf {

// Read-only memory behind a model: a mapped file, or a copy of bytes.
class Mapping {
 public:
  // Errors: cannot be opened, not a regular file, empty, cannot be mapped; with the system's
  // reason.
  static Result<std::unique_ptr<Mapping>> OpenFile(const std::string& path);
  static std::unique_ptr<Mapping> Copy(std::span<const std::byte> bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  Mapping() = default;
  std::span<const std::byte> bytes_;
  bool mapped_ = false;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace winnow::gguf

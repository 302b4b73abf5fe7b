#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"

namespace winnow::report {

// Writes a safetensors file (8 bytes of header length, a JSON header, then the tensors'
// little-endian bytes) whose shapes are known beforehand and whose data comes in pieces, so that
// nothing large is held in memory.
class SafetensorsWriter {
 public:
  enum class Type { kF32, kI32 };
  struct Tensor {
    std::string name;
    Type type = Type::kF32;
    std::vector<int64_t> shape;
  };

  // Errors: the file cannot be written.
  static Result<SafetensorsWriter> Create(const std::string& path,
                                          const std::vector<Tensor>& tensors,
                                          const std::map<std::string, std::string>& metadata = {});

  // The next bytes of tensor data, in the order of `tensors`.
  Result<void> Write(std::span<const float> values);
  Result<void> Write(std::span<const int32_t> values);
  // The file is there from now on, and not before. Errors: the disk; a number of bytes other than
  // announced is a bug.
  Result<void> Finish();

 private:
  explicit SafetensorsWriter(OutputFile file) : file_(std::move(file)) {}
  Result<void> WriteBytes(const char* bytes, size_t n);

  OutputFile file_;
  int64_t expected_bytes_ = 0;
  int64_t written_bytes_ = 0;
};

}  // namespace winnow::report

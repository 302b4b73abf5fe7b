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

// Writes a safetensors file: 8 bytes of header length, a JSON header, then the tensors'
// little-endian bytes. The shapes are known beforehand and the data comes in pieces, so nothing
// large is held in memory.
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
  // Commits the file; until then nothing changes at its path. Errors: the disk. Requires: exactly
  // the announced number of bytes was written.
  Result<void> Finish();

 private:
  explicit SafetensorsWriter(OutputFile file) : file_(std::move(file)) {}
  Result<void> WriteBytes(const char* bytes, size_t n);

  OutputFile file_;
  int64_t expected_bytes_ = 0;
  int64_t written_bytes_ = 0;
};

}  // namespace winnow::report

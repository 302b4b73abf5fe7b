#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace winnow::report {

// Reads a safetensors file, values on request: nothing large is held in memory.
class SafetensorsReader {
 public:
  struct Tensor {
    std::string name;
    std::string type;  // "F32", "I32", "BF16", ...
    std::vector<int64_t> shape;
    int64_t n_values = 0;
    int64_t begin_bytes = 0;  // in the file
  };

  // Errors: cannot be read; not a safetensors file; a header that contradicts itself or the file's
  // length (names the tensor).
  static Result<SafetensorsReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const Tensor* Find(const std::string& name) const;  // null if absent

  // Reads values [first, first + out.size()) of a tensor. Errors: the tensor has another type; the
  // disk. Requires: the range lies within the tensor.
  Result<void> Read(const Tensor& tensor, int64_t first, std::span<float> out);
  Result<void> Read(const Tensor& tensor, int64_t first, std::span<int32_t> out);

 private:
  SafetensorsReader() = default;
  Result<void> ReadHeader();
  Result<void> ReadBytes(const Tensor& tensor, std::string_view type, int64_t first, char* out,
                         int64_t n);

  std::string path_;
  std::ifstream file_;
  int64_t file_bytes_ = 0;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace winnow::report

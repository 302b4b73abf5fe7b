#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace winnow::oracle {

// A safetensors file read into memory: F32 and I32 tensors, and the metadata strings.
struct SafetensorsFile {
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> floats;      // of an F32 tensor
    std::vector<int32_t> integers;  // of an I32 tensor
  };
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  // Errors: unreadable or truncated file, another format, other element types.
  static Result<SafetensorsFile> Read(const std::string& path);
};

}  // namespace winnow::oracle

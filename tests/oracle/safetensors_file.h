#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace winnow::oracle {

// A safetensors file read whole: F32 and I32 tensors and the strings of its metadata.
struct SafetensorsFile {
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> floats;      // of an F32 tensor
    std::vector<int32_t> integers;  // of an I32 tensor
  };
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  // Errors: unreadable, truncated, or not such a file; other element types.
  static Result<SafetensorsFile> Read(const std::string& path);
};

}  // namespace winnow::oracle

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"

namespace winnow::gguf {

// The content of one GGUF file; views point into the parsed bytes.
struct Shard {
  uint32_t version = 0;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<Tensor> tensors;
};

// Parses and checks a whole GGUF file: every rule of the format that needs no other file. Time and
// memory are linear in the bytes before the tensor data, whatever counts the file claims. Errors:
// those of File::Open, without the "gguf: " that File puts before them.
Result<Shard> ParseShard(std::span<const std::byte> bytes);

}  // namespace winnow::gguf

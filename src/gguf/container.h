#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"

namespace winnow::gguf {

// What one file of a (perhaps split) model holds, all checked. Views point into the bytes given.
struct Container {
  uint32_t version = 0;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<Tensor> tensors;
};

// Format sections 1 and 2. Errors name the key or tensor; see section 12 for what is refused.
Result<Container> ParseContainer(std::span<const std::byte> bytes);

std::string_view NameOf(Value::Type type);

}  // namespace winnow::gguf

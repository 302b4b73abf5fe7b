#pragma once

#include <cstddef>
#include <span>

namespace winnow::models {

// The GGUF file models/winnow-s-Q8_0.gguf; its first byte is aligned to 64.
std::span<const std::byte> Bundled();

}  // namespace winnow::models

#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace winnow::models {

// The GGUF file models/winnow-s-Q8_0.gguf; its first byte is aligned to 64.
std::span<const std::byte> Bundled();
// Its error profiles (compression/error_profile.h), made by winnow calibrate:
// models/winnow-s-Q8_0.gguf.profile.
std::string_view BundledProfile();

}  // namespace winnow::models

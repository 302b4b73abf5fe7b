#pragma once

#include <string_view>

#include "gguf/file.h"

namespace winnow::gguf {

// The name of general.file_type, such as "Q4_K_M", which identifies a quantization mix. It is only
// a label; the actual types are those of the tensors. Empty if the key is absent or its number
// unknown.
std::string_view FileTypeName(const File& file);

}  // namespace winnow::gguf

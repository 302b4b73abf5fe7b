#pragma once

#include <string_view>

#include "gguf/file.h"

namespace winnow::gguf {

// "Q4_K_M": the label of general.file_type, by which people name a quantisation mix. Only a label:
// the tensors say what they hold. Empty without the key or with an unknown number.
std::string_view FileTypeName(const File& file);

}  // namespace winnow::gguf

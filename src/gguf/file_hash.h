#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "gguf/file.h"

namespace winnow::gguf {

// What tells one model file from another. Up to 64 MiB it is "sha256:" and the hash of the bytes.
// Larger ones are sampled, so that a run of seconds does not begin with a minute of reading:
// "sampled-sha256:" and the hash of the size, the first 4 MiB, which hold the metadata, and 4 KiB
// at each of 4096 evenly spread places.
std::string ContentHash(std::span<const std::byte> bytes);
// Of a split file it is "split-sha256:" (or "split-sampled-sha256:") and the hash of what
// ContentHash says of its parts, one after another.
std::string ContentHashOfParts(std::span<const std::span<const std::byte>> parts);
std::string ContentHash(const File& file);

}  // namespace winnow::gguf

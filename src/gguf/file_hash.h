#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "gguf/file.h"

namespace winnow::gguf {

// Identifies the content of a model file. Up to 64 MiB: "sha256:" and the hash of all bytes. Larger
// files are sampled, because reading them whole could take a minute: "sampled-sha256:" and the hash
// of the size, the first 4 MiB, which hold the metadata, and 4 KiB at each of 4096 evenly spaced
// offsets.
std::string ContentHash(std::span<const std::byte> bytes);
// For a split model: "split-sha256:" (or "split-sampled-sha256:") and the hash of the concatenated
// ContentHash strings of its parts.
std::string ContentHashOfParts(std::span<const std::span<const std::byte>> parts);
std::string ContentHash(const File& file);

}  // namespace winnow::gguf

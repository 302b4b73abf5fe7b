#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "gguf/byte_reader.h"
#include "gguf/file.h"

namespace winnow::gguf {

// Reads `n_tensors` tensor infos at the cursor and finds each tensor's bytes. `file` is the whole
// file; its data section starts after the infos, rounded up to `alignment`. Requires: alignment is
// a power of two. Errors, by tensor name: bad name, duplicate, shape, type, offset; data beyond the
// end of the file.
Result<std::vector<Tensor>> ReadTensors(ByteReader& reader, uint64_t n_tensors, uint64_t alignment,
                                        std::span<const std::byte> file);

}  // namespace winnow::gguf

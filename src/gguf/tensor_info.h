#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "gguf/byte_reader.h"
#include "gguf/file.h"

namespace winnow::gguf {

// `n_tensors` tensor infos at the cursor, and the bytes each one stands for. `file` is the whole
// file: the data section starts in it where the infos end, rounded up to `alignment`. Requires:
// alignment is a power of two. Errors, by tensor name: bad name, duplicate, shape, type, offset;
// data beyond the end of the file.
Result<std::vector<Tensor>> ReadTensors(ByteReader& reader, uint64_t n_tensors, uint64_t alignment,
                                        std::span<const std::byte> file);

}  // namespace winnow::gguf

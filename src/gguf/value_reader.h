#pragma once

#include <string_view>

#include "base/result.h"
#include "gguf/byte_reader.h"
#include "gguf/file.h"

namespace winnow::gguf {

// Maximum number of elements of a metadata array. Our limit: the largest in published models, lists
// of merges, have fewer than 2^20. It bounds the widened copy of an array in a malicious file.
inline constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;

// "u32", "string", ...; for error messages.
std::string_view ToString(Value::Type type);

// One metadata value at the cursor: its type id, then its bytes. Strings stay views into the file.
// Errors: unknown type id, nested array, a count or length beyond the rest of the file, a bool
// other than 0 or 1.
Result<Value> ReadValue(ByteReader& reader);

}  // namespace winnow::gguf

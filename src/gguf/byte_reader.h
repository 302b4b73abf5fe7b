#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace winnow::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place: little-endian");

// A cursor over the bytes of a file that never reads past their end. Errors say where the file ends
// and how much is missing; the caller adds the name of the key or tensor being read.
class ByteReader {
 public:
  // Maximum length of a string that the format's readers accept.
  static constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;

  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  Result<T> Read() {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return Truncated(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // The next `n` bytes. Requires: n <= remaining().
  std::span<const std::byte> Take(size_t n) {
    WINNOW_DCHECK(n <= remaining());
    const std::span<const std::byte> taken = bytes_.subspan(position_, n);
    position_ += n;
    return taken;
  }

  // Reads a u64 length and that many bytes. Returns a view into the file; the bytes need not be
  // UTF-8.
  Result<std::string_view> ReadString() {
    WINNOW_ASSIGN(const uint64_t length, Read<uint64_t>());
    if (length > kMaxStringBytes || length > remaining()) {
      return Error{"string of " + std::to_string(length) + " bytes at byte " +
                   std::to_string(position_) + ", but " + std::to_string(remaining()) +
                   " bytes are left in the file (damaged, or truncated with " +
                   std::to_string(length > remaining() ? length - remaining() : 0) + " missing)"};
    }
    const std::span<const std::byte> taken = Take(length);
    return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
  }

 private:
  Error Truncated(size_t needed) const {
    return Error{"file is truncated: " + std::to_string(needed) + " bytes needed at byte " +
                 std::to_string(position_) + ", " + std::to_string(needed - remaining()) +
                 " of them missing"};
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace winnow::gguf

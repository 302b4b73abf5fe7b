#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace winnow::gguf {

// Printable ASCII, everything else as \xHH, cut after 80 bytes: names from a hostile file go into
// messages.
std::string Printable(std::string_view text);

// Reads little-endian values from bytes that cannot be trusted: never past the end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  int64_t position() const { return static_cast<int64_t>(position_); }
  int64_t remaining() const { return static_cast<int64_t>(bytes_.size() - position_); }

  // `what` names the thing being read, for the message when the file ends early.
  template <typename T>
  Result<T> Read(std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() - position_ < sizeof(T)) return Truncated(what, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // `count` elements of `size` bytes. Error also where the product does not fit.
  Result<std::span<const std::byte>> ReadBytes(uint64_t count, uint64_t size,
                                               std::string_view what);

  // u64 length, then bytes; a view into the file.
  Result<std::string_view> ReadString(std::string_view what);

 private:
  Error Truncated(std::string_view what, uint64_t wanted) const;

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace winnow::gguf

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// Numbers, lists and strings as bytes, for winnow's own file formats. Little-endian, like memory on
// all supported machines.
namespace winnow {

static_assert(std::endian::native == std::endian::little);

// Types that can be copied as bytes and have no padding, which would write uninitialized memory.
template <class T>
concept Plain = std::is_trivially_copyable_v<T> &&
    (std::is_floating_point_v<T> || std::has_unique_object_representations_v<T>);

// Appends to a string of bytes.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& bytes) : bytes_(bytes) {}

  template <Plain T>
  void Put(T value) {
    PutRaw(std::as_bytes(std::span(&value, 1)));
  }
  // Writes the number of values, then the values.
  template <Plain T>
  void PutList(std::span<const T> values) {
    Put(static_cast<uint64_t>(values.size()));
    PutRaw(std::as_bytes(values));
  }
  void PutText(std::string_view text) { PutList(std::span<const char>(text)); }
  void PutRaw(std::span<const std::byte> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  // Appends n bytes and returns them for the caller to fill. Valid until the next call.
  std::span<std::byte> Extend(size_t n) {
    bytes_.resize(bytes_.size() + n);
    return {reinterpret_cast<std::byte*>(bytes_.data()) + bytes_.size() - n, n};
  }

 private:
  std::string& bytes_;
};

// Reads what ByteWriter wrote, or arbitrary bytes: every call returns false if too few are left.
// Allocates no more than the bytes that are left can fill.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <Plain T>
  bool Get(T& value) {
    std::span<const std::byte> from;
    if (!GetRaw(sizeof(T), from)) return false;
    std::memcpy(&value, from.data(), sizeof(T));
    return true;
  }
  template <Plain T>
  bool GetList(std::vector<T>& values) {
    uint64_t n = 0;
    if (!Get(n) || n > bytes_.size() / sizeof(T)) return false;
    values.resize(static_cast<size_t>(n));
    return GetInto(std::span<T>(values));
  }
  bool GetText(std::string& text) {
    uint64_t n = 0;
    std::span<const std::byte> from;
    if (!Get(n) || n > bytes_.size() || !GetRaw(static_cast<size_t>(n), from)) return false;
    text.assign(reinterpret_cast<const char*>(from.data()), from.size());
    return true;
  }
  // Reads values.size() values, which are not preceded by their number.
  template <Plain T>
  bool GetInto(std::span<T> values) {
    std::span<const std::byte> from;
    if (!GetRaw(values.size_bytes(), from)) return false;
    if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
    return true;
  }
  bool GetRaw(size_t n, std::span<const std::byte>& bytes) {
    if (n > bytes_.size()) return false;
    bytes = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return true;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace winnow

#include "gguf/cursor.h"

namespace winnow::gguf {
namespace {

// Longest string the reference reader takes.
constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;

}  // namespace

std::string Printable(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string printable;
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      printable += c;
    } else {
      printable += "\\x";
      printable += kHex[byte >> 4];
      printable += kHex[byte & 15];
    }
  }
  if (text.size() > kMaxBytes) printable += "...";
  return printable;
}

Result<std::span<const std::byte>> Cursor::ReadBytes(uint64_t count, uint64_t size,
                                                     std::string_view what) {
  const uint64_t left = bytes_.size() - position_;
  if (size != 0 && count > left / size) {
    if (count > UINT64_MAX / size) {
      return Error{std::string(what) + ": " + std::to_string(count) + " elements of " +
                   std::to_string(size) + " bytes cannot be"};
    }
    return Truncated(what, count * size);
  }
  const auto bytes = bytes_.subspan(position_, static_cast<size_t>(count * size));
  position_ += bytes.size();
  return bytes;
}

Result<std::string_view> Cursor::ReadString(std::string_view what) {
  WINNOW_ASSIGN(const uint64_t length, Read<uint64_t>(what));
  if (length > kMaxStringBytes) {
    return Error{std::string(what) + ": string of " + std::to_string(length) +
                 " bytes, at most 2^30 are allowed"};
  }
  WINNOW_ASSIGN(const auto bytes, ReadBytes(length, 1, what));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Error Cursor::Truncated(std::string_view what, uint64_t wanted) const {
  return Error{std::string(what) + ": the file ends " +
               std::to_string(wanted - (bytes_.size() - position_)) + " bytes too early (byte " +
               std::to_string(position_) + ", " + std::to_string(wanted) + " wanted)"};
}

}  // namespace winnow::gguf

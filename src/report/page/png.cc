#include "report/page/png.h"

#include <algorithm>
#include <string_view>

namespace winnow::report {
namespace {

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

uint32_t Adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

std::string Chunk(std::string_view type, std::string_view data) {
  const std::string typed = std::string(type) + std::string(data);
  return BigEndian(static_cast<uint32_t>(data.size())) + typed + BigEndian(Crc32(typed));
}

// One deflate block with the fixed codes of RFC 1951, section 3.2.6. Matches are searched at two
// distances only: one byte (runs) and one row. Heat maps consist of little else.
class Deflater {
 public:
  explicit Deflater(size_t row_bytes) : row_bytes_(row_bytes) {}

  std::string Compress(std::string_view bytes) {
    AddBits(0b011, 3);  // the last block, fixed codes
    for (size_t at = 0; at < bytes.size();) {
      const size_t run = Match(bytes, at, 1);
      const size_t above = Match(bytes, at, row_bytes_);
      const size_t length = std::max(run, above);
      if (length >= kShortest) {
        AddLength(static_cast<uint32_t>(length));
        AddDistance(static_cast<uint32_t>(run >= above ? 1 : row_bytes_));
        at += length;
      } else {
        AddSymbol(static_cast<uint8_t>(bytes[at++]));
      }
    }
    AddSymbol(256);
    AddBits(0, 7);  // flushes the last byte
    return std::move(out_);
  }

 private:
  static constexpr size_t kShortest = 3, kLongest = 258, kFarthest = 32768;

  static size_t Match(std::string_view bytes, size_t at, size_t distance) {
    if (distance > at || distance > kFarthest) return 0;
    const size_t max = std::min(kLongest, bytes.size() - at);
    size_t length = 0;
    while (length < max && bytes[at + length] == bytes[at + length - distance]) ++length;
    return length;
  }

  void AddBits(uint32_t bits, int n) {  // least significant first
    for (int i = 0; i < n; ++i) {
      pending_ |= (bits >> i & 1) << n_pending_;
      if (++n_pending_ < 8) continue;
      out_ += static_cast<char>(pending_);
      pending_ = 0;
      n_pending_ = 0;
    }
  }
  void AddCode(uint32_t code, int n) {  // most significant first
    for (int i = n - 1; i >= 0; --i) AddBits(code >> i & 1, 1);
  }
  void AddSymbol(uint32_t symbol) {
    if (symbol < 144) return AddCode(0x30 + symbol, 8);
    if (symbol < 256) return AddCode(0x190 + symbol - 144, 9);
    if (symbol < 280) return AddCode(symbol - 256, 7);
    AddCode(0xC0 + symbol - 280, 8);
  }
  void AddLength(uint32_t length) {
    if (length == kLongest) return AddSymbol(285);
    if (length < 11) return AddSymbol(257 + length - 3);
    // Groups of four codes, each group with one extra bit more than the one before.
    const uint32_t offset = length - 3;
    int extra = 1;
    while (offset >> (extra + 3) != 0) ++extra;
    AddSymbol(257 + 4 * static_cast<uint32_t>(extra) + (offset >> extra));
    AddBits(offset & ((1U << extra) - 1), extra);
  }
  void AddDistance(uint32_t distance) {
    const uint32_t offset = distance - 1;
    if (offset < 4) return AddCode(offset, 5);
    int extra = 1;
    while (offset >> (extra + 2) != 0) ++extra;
    AddCode(2 * static_cast<uint32_t>(extra) + (offset >> extra), 5);
    AddBits(offset & ((1U << extra) - 1), extra);
  }

  size_t row_bytes_;
  std::string out_;
  uint32_t pending_ = 0;
  int n_pending_ = 0;
};

}  // namespace

std::string IndexedPng(int64_t width, int64_t height, std::span<const uint8_t> pixels,
                       const std::array<uint32_t, 256>& colours) {
  std::string rows;
  for (int64_t row = 0; row < height; ++row) {
    rows += '\0';  // no filter
    for (const uint8_t pixel :
         pixels.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width))) {
      rows += static_cast<char>(pixel);
    }
  }
  std::string palette;
  for (const uint32_t colour : colours) palette += BigEndian(colour).substr(1);
  std::string opacity(255, '\xFF');
  opacity += '\0';
  const std::string header = BigEndian(static_cast<uint32_t>(width)) +
                             BigEndian(static_cast<uint32_t>(height)) +
                             std::string({8, 3, 0, 0, 0});  // 8 bits, indexed, not interlaced
  const std::string data = "\x78\x01" + Deflater(static_cast<size_t>(width) + 1).Compress(rows) +
                           BigEndian(Adler32(rows));
  return "\x89PNG\r\n\x1A\n" + Chunk("IHDR", header) + Chunk("PLTE", palette) +
         Chunk("tRNS", opacity) + Chunk("IDAT", data) + Chunk("IEND", "");
}

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view three = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < three.size() ? static_cast<uint8_t>(three[j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= three.size() ? kLetters[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

}  // namespace winnow::report

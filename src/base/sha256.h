#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace winnow {

// SHA-256 (FIPS 180-4).
class Sha256 {
 public:
  void Add(std::span<const std::byte> bytes);
  // Digest of all added bytes as 64 hexadecimal digits. Requires: the object is not used
  // afterwards.
  std::string Hex();

 private:
  void Round(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                    0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
  std::array<std::byte, 64> block_ = {};
  size_t n_block_ = 0;
  uint64_t n_bytes_ = 0;
};

}  // namespace winnow

#include "base/sha256.h"

#include <algorithm>
#include <bit>

namespace winnow {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kConstants[64] = {
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
    0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
    0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
    0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
    0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
    0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
    0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
    0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2};

uint32_t BigEndian(const std::byte* at) {
  return (std::to_integer<uint32_t>(at[0]) << 24) | (std::to_integer<uint32_t>(at[1]) << 16) |
         (std::to_integer<uint32_t>(at[2]) << 8) | std::to_integer<uint32_t>(at[3]);
}

}  // namespace

void Sha256::Round(const std::byte* block) {
  uint32_t words[64];
  for (int i = 0; i < 16; ++i) words[i] = BigEndian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = words[i - 15];
    const uint32_t b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kConstants[i] + words[i];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t added[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

void Sha256::Add(std::span<const std::byte> bytes) {
  n_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (n_block_ == 0 && bytes.size() >= block_.size()) {
      Round(bytes.data());
      bytes = bytes.subspan(block_.size());
      continue;
    }
    const size_t n = std::min(bytes.size(), block_.size() - n_block_);
    std::copy_n(bytes.begin(), n, block_.begin() + static_cast<ptrdiff_t>(n_block_));
    n_block_ += n;
    bytes = bytes.subspan(n);
    if (n_block_ == block_.size()) {
      Round(block_.data());
      n_block_ = 0;
    }
  }
}

std::string Sha256::Hex() {
  const uint64_t n_bits = 8 * n_bytes_;
  const std::byte one{0x80};
  const std::byte zero{0};
  Add({&one, 1});
  while (n_block_ != 56) Add({&zero, 1});
  std::array<std::byte, 8> length;
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(n_bits >> (56 - 8 * i));
  Add(length);
  std::string hex;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[(word >> shift) & 15];
  }
  return hex;
}

}  // namespace winnow

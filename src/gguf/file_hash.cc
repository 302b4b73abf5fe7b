#include "gguf/file_hash.h"

#include <cstdint>

#include "base/sha256.h"

namespace winnow::gguf {
namespace {

constexpr int64_t kWhole = int64_t{64} << 20;
constexpr int64_t kHead = int64_t{4} << 20;
constexpr int64_t kPlace = 4096;  // bytes
constexpr int64_t kPlaces = 4096;

}  // namespace

std::string ContentHash(std::span<const std::byte> bytes) {
  const auto n_bytes = static_cast<int64_t>(bytes.size());
  Sha256 hash;
  if (n_bytes <= kWhole) {
    hash.Add(bytes);
    return "sha256:" + hash.Hex();
  }
  hash.Add(std::as_bytes(std::span(&n_bytes, 1)));
  hash.Add(bytes.first(kHead));
  for (int64_t i = 0; i < kPlaces; ++i) {
    hash.Add(bytes.subspan(static_cast<size_t>((n_bytes - kPlace) / (kPlaces - 1) * i), kPlace));
  }
  return "sampled-sha256:" + hash.Hex();
}

std::string ContentHashOfParts(std::span<const std::span<const std::byte>> parts) {
  if (parts.size() == 1) return ContentHash(parts.front());
  Sha256 hash;
  bool sampled = false;
  for (const std::span<const std::byte> part : parts) {
    const std::string of_part = ContentHash(part);
    sampled |= of_part.starts_with("sampled");
    hash.Add(std::as_bytes(std::span(of_part)));
  }
  return std::string(sampled ? "split-sampled-sha256:" : "split-sha256:") + hash.Hex();
}

std::string ContentHash(const File& file) { return ContentHashOfParts(file.contents()); }

}  // namespace winnow::gguf

#include "gguf/shard.h"

#include <algorithm>
#include <bit>
#include <set>
#include <string_view>

#include "gguf/byte_reader.h"
#include "gguf/printable.h"
#include "gguf/tensor_info.h"
#include "gguf/value_reader.h"

namespace winnow::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint32_t kDefaultAlignment = 32;
// The format requires a multiple of 8; a smaller one could misalign F32 data.
constexpr uint32_t kMinAlignment = 8;
// key length, one byte of key, type, one byte of value
constexpr size_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr size_t kMaxKeyBytes = 65535;

Result<void> ReadMagic(ByteReader& reader) {
  const auto bytes = reader.Take(std::min(kMagic.size(), reader.remaining()));
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (start == kMagic) return {};
  if (kMagic.starts_with(start)) {
    return Error{"file is truncated: " + std::to_string(start.size()) + " bytes found"};
  }
  std::string message = "not a GGUF file: it starts with \"" + Printable(start) + "\"";
  if (start == "vers") message += " (a Git LFS pointer instead of the file it points to?)";
  return Error{message};
}

Result<uint32_t> ReadVersion(ByteReader& reader) {
  WINNOW_ASSIGN(const uint32_t version, reader.Read<uint32_t>());
  if (version == 2 || version == 3) return version;
  if (version != 0 && (version & 0xffff) == 0) {
    return Error{"big-endian file (little-endian expected)"};
  }
  return Error{"version " + std::to_string(version) + " is not supported (2 or 3 expected)"};
}

Result<std::string> ReadKey(ByteReader& reader) {
  WINNOW_ASSIGN(const std::string_view key, reader.ReadString());
  if (key.empty()) return Error{"empty key"};
  if (key.size() > kMaxKeyBytes) {
    return Error{"key of " + std::to_string(key.size()) + " bytes (at most " +
                 std::to_string(kMaxKeyBytes) + " expected)"};
  }
  if (!IsPrintableAscii(key)) return Error{"key is not printable ASCII: " + Printable(key)};
  return std::string(key);
}

using Metadata = std::vector<std::pair<std::string, Value>>;

Result<Metadata> ReadMetadata(ByteReader& reader, uint64_t n_pairs) {
  if (n_pairs > reader.remaining() / kMinPairBytes) {
    return Error{std::to_string(n_pairs) + " metadata keys, but at most " +
                 std::to_string(reader.remaining() / kMinPairBytes) + " fit in the " +
                 std::to_string(reader.remaining()) + " bytes left in the file"};
  }
  Metadata metadata;
  std::set<std::string> keys;  // sorted, as in File
  for (uint64_t i = 0; i < n_pairs; ++i) {
    Result<std::string> key = ReadKey(reader);
    if (!key) return Error{"metadata key " + std::to_string(i) + ": " + key.error().message};
    if (!keys.insert(*key).second) return Error{Printable(*key) + ": key appears twice"};
    Result<Value> value = ReadValue(reader);
    if (!value) return Error{Printable(*key) + ": " + value.error().message};
    metadata.emplace_back(*std::move(key), *std::move(value));
  }
  return metadata;
}

Result<uint32_t> ReadAlignment(const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key != kAlignmentKey) continue;
    if (value.type != Value::Type::kU32) {
      return Error{key + ": type " + std::string(ToString(value.type)) + " (u32 expected)"};
    }
    const auto alignment = static_cast<uint32_t>(std::get<uint64_t>(value.data));
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment) {
      return Error{key + ": " + std::to_string(alignment) + " (a power of two from " +
                   std::to_string(kMinAlignment) + " on expected)"};
    }
    return alignment;
  }
  return kDefaultAlignment;
}

}  // namespace

Result<Shard> ParseShard(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Shard shard;
  WINNOW_TRY(ReadMagic(reader));
  WINNOW_ASSIGN(shard.version, ReadVersion(reader));
  WINNOW_ASSIGN(const uint64_t n_tensors, reader.Read<uint64_t>());
  WINNOW_ASSIGN(const uint64_t n_pairs, reader.Read<uint64_t>());
  WINNOW_ASSIGN(shard.metadata, ReadMetadata(reader, n_pairs));
  WINNOW_ASSIGN(const uint32_t alignment, ReadAlignment(shard.metadata));
  WINNOW_ASSIGN(shard.tensors, ReadTensors(reader, n_tensors, alignment, bytes));
  return shard;
}

}  // namespace winnow::gguf

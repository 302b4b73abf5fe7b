#include "gguf/tensor_info.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "gguf/printable.h"

namespace winnow::gguf {
namespace {

// Limit of the format: names have 64 bytes including a terminator.
constexpr size_t kMaxNameBytes = 63;
constexpr uint32_t kMaxDims = 4;
// Our limit, far above any published model. It bounds the allocation for a malicious count.
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
// name length, one byte of name, n_dims, one size, type, offset
constexpr size_t kMinInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;

// A tensor without its bytes, and the location of the bytes according to the file.
struct Info {
  Tensor tensor;
  uint64_t offset = 0;  // from the start of the data section
  uint64_t n_bytes = 0;
};

// `value` rounded up to `alignment`, a power of two; nothing if that overflows.
std::optional<uint64_t> AlignUp(uint64_t value, uint64_t alignment) {
  uint64_t sum;
  if (__builtin_add_overflow(value, alignment - 1, &sum)) return std::nullopt;
  return sum & ~(alignment - 1);
}

Result<std::string> ReadName(ByteReader& reader) {
  WINNOW_ASSIGN(const std::string_view name, reader.ReadString());
  if (name.empty()) return Error{"empty name"};
  if (name.size() > kMaxNameBytes) {
    return Error{"name of " + std::to_string(name.size()) + " bytes (at most " +
                 std::to_string(kMaxNameBytes) + " expected): " + Printable(name)};
  }
  if (!IsPrintableAscii(name)) return Error{"name is not printable ASCII: " + Printable(name)};
  return std::string(name);
}

Result<void> ReadShape(ByteReader& reader, Tensor& tensor) {
  WINNOW_ASSIGN(const uint32_t n_dims, reader.Read<uint32_t>());
  if (n_dims < 1 || n_dims > kMaxDims) {
    return Error{std::to_string(n_dims) + " dimensions (1 to 4 expected)"};
  }
  tensor.n_dims = static_cast<int>(n_dims);
  int64_t n_elements = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {
    WINNOW_ASSIGN(const int64_t size, reader.Read<int64_t>());
    if (size < 1) {
      return Error{"dimension " + std::to_string(i) + " is " + std::to_string(size) +
                   " (1 or more expected)"};
    }
    if (__builtin_mul_overflow(n_elements, size, &n_elements)) {
      return Error{"more than 2^63 elements"};
    }
    tensor.shape[i] = size;
  }
  return {};
}

Error TypeError(uint32_t id) {
  const std::string_view name = NameOfTypeId(id);
  std::string message = "type " + std::to_string(id) + " unknown";
  if (name != "unknown") message = "type " + std::string(name) + " is not supported";
  std::string_view separator = " (supported: ";
  for (const TypeInfo& info : SupportedTypes()) {
    message += std::string(separator) + std::string(info.name);
    separator = ", ";
  }
  return Error{message + ")"};
}

Result<void> ReadTypeAndSize(ByteReader& reader, Info& info) {
  WINNOW_ASSIGN(const uint32_t id, reader.Read<uint32_t>());
  const std::optional<TensorType> type = TensorTypeFromId(id);
  if (!type) return TypeError(id);
  info.tensor.type = *type;
  const TypeInfo& geometry = GetTypeInfo(*type);
  const int64_t row = info.tensor.shape[0];
  if (row % geometry.block_elements != 0) {
    return Error{"rows of " + std::to_string(row) + " elements (a multiple of " +
                 std::to_string(geometry.block_elements) + " expected for " +
                 std::string(geometry.name) + ")"};
  }
  const int64_t n_blocks = info.tensor.n_elements() / geometry.block_elements;
  int64_t n_bytes;
  if (__builtin_mul_overflow(n_blocks, int64_t{geometry.block_bytes}, &n_bytes)) {
    return Error{"more than 2^63 bytes"};
  }
  info.n_bytes = static_cast<uint64_t>(n_bytes);
  return {};
}

// Reads everything after the name.
Result<Info> ReadInfo(ByteReader& reader) {
  Info info;
  WINNOW_TRY(ReadShape(reader, info.tensor));
  WINNOW_TRY(ReadTypeAndSize(reader, info));
  WINNOW_ASSIGN(info.offset, reader.Read<uint64_t>());
  return info;
}

// Tensors lie in file order with only padding between them, so every offset is determined. This
// rule rejects misaligned, overlapping and descending offsets.
Result<void> CheckOffsets(std::span<const Info> infos, uint64_t alignment) {
  uint64_t expected = 0;
  for (const Info& info : infos) {
    if (info.offset != expected) {
      return Error{info.tensor.name + ": data at offset " + std::to_string(info.offset) + " (" +
                   std::to_string(expected) + " expected)"};
    }
    const std::optional<uint64_t> next = AlignUp(info.n_bytes, alignment);
    if (!next || __builtin_add_overflow(expected, *next, &expected)) {
      return Error{info.tensor.name + ": the tensors' bytes overflow 64 bits"};
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Tensor>> ReadTensors(ByteReader& reader, uint64_t n_tensors, uint64_t alignment,
                                        std::span<const std::byte> file) {
  const uint64_t max = std::min<uint64_t>(kMaxTensors, reader.remaining() / kMinInfoBytes);
  if (n_tensors > max) {
    return Error{std::to_string(n_tensors) + " tensors (at most " + std::to_string(max) +
                 " expected, as " + std::to_string(reader.remaining()) + " bytes are left)"};
  }
  std::vector<Info> infos;
  infos.reserve(n_tensors);          // no reallocation: `names` holds views of the names
  std::set<std::string_view> names;  // sorted, as in File
  for (uint64_t i = 0; i < n_tensors; ++i) {
    Result<std::string> name = ReadName(reader);
    if (!name) return Error{"tensor " + std::to_string(i) + ": " + name.error().message};
    Result<Info> info = ReadInfo(reader);
    if (!info) return Error{*name + ": " + info.error().message};
    infos.push_back(*std::move(info));
    infos.back().tensor.name = *std::move(name);
    if (!names.insert(infos.back().tensor.name).second) {
      return Error{infos.back().tensor.name + ": tensor appears twice"};
    }
  }
  WINNOW_TRY(CheckOffsets(infos, alignment));

  std::vector<Tensor> tensors;
  if (infos.empty()) return tensors;
  const std::optional<uint64_t> data_start = AlignUp(reader.position(), alignment);
  WINNOW_CHECK(data_start);  // a file's size is far from 2^64, and alignments have 32 bits
  uint64_t data_end;
  if (__builtin_add_overflow(*data_start, infos.back().offset + infos.back().n_bytes, &data_end)) {
    return Error{infos.back().tensor.name + ": the tensors' bytes overflow 64 bits"};
  }
  if (data_end > file.size()) {
    return Error{"file is truncated: " + std::to_string(data_end - file.size()) +
                 " bytes missing (" + std::to_string(file.size()) + " found, " +
                 std::to_string(data_end) + " expected)"};
  }
  tensors.reserve(n_tensors);
  for (Info& info : infos) {
    info.tensor.bytes = file.subspan(*data_start + info.offset, info.n_bytes);
    tensors.push_back(std::move(info.tensor));
  }
  return tensors;
}

}  // namespace winnow::gguf

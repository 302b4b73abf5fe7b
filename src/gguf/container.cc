#include "gguf/container.h"

#include <bit>
#include <unordered_set>

#include "gguf/cursor.h"

namespace winnow::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, little-endian");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 30;
constexpr uint64_t kDefaultAlignment = 32;
constexpr size_t kMaxTensorNameBytes = 63;
constexpr uint32_t kMaxDims = 4;
constexpr std::string_view kAlignmentKey = "general.alignment";

// Smallest encodings, to bound counts by what is left of the file before anything is reserved.
constexpr int64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;
constexpr int64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;

Result<Value::Type> TypeFromId(uint32_t id, const std::string& where) {
  if (id > static_cast<uint32_t>(Value::Type::kF64)) {
    return Error{where + ": value type " + std::to_string(id) + " unknown, expected 0 to 12"};
  }
  return static_cast<Value::Type>(id);
}

uint64_t SizeOf(Value::Type type) {
  switch (type) {
    case Value::Type::kU8:
    case Value::Type::kI8:
    case Value::Type::kBool:
      return 1;
    case Value::Type::kU16:
    case Value::Type::kI16:
      return 2;
    case Value::Type::kU32:
    case Value::Type::kI32:
    case Value::Type::kF32:
      return 4;
    default:
      return 8;
  }
}

template <typename Stored, typename Wide>
std::vector<Wide> Widen(std::span<const std::byte> bytes) {
  std::vector<Wide> wide(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < wide.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    wide[i] = static_cast<Wide>(stored);
  }
  return wide;
}

Result<Value::Array> ReadArray(Cursor& cursor, Value::Type type, uint64_t count,
                               const std::string& where) {
  if (type == Value::Type::kString) {
    if (count > static_cast<uint64_t>(cursor.remaining()) / 8) {
      return Error{where + ": " + std::to_string(count) + " strings in the " +
                   std::to_string(cursor.remaining()) + " bytes left of the file"};
    }
    std::vector<std::string_view> strings;
    strings.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      auto string = cursor.ReadString(where);
      if (!string) return string.error();
      strings.push_back(*string);
    }
    return Value::Array(std::move(strings));
  }
  WINNOW_ASSIGN(const auto bytes, cursor.ReadBytes(count, SizeOf(type), where));
  switch (type) {
    case Value::Type::kU8:
      return Value::Array(Widen<uint8_t, uint64_t>(bytes));
    case Value::Type::kU16:
      return Value::Array(Widen<uint16_t, uint64_t>(bytes));
    case Value::Type::kU32:
      return Value::Array(Widen<uint32_t, uint64_t>(bytes));
    case Value::Type::kU64:
      return Value::Array(Widen<uint64_t, uint64_t>(bytes));
    case Value::Type::kI8:
      return Value::Array(Widen<int8_t, int64_t>(bytes));
    case Value::Type::kI16:
      return Value::Array(Widen<int16_t, int64_t>(bytes));
    case Value::Type::kI32:
      return Value::Array(Widen<int32_t, int64_t>(bytes));
    case Value::Type::kI64:
      return Value::Array(Widen<int64_t, int64_t>(bytes));
    case Value::Type::kF32:
      return Value::Array(Widen<float, double>(bytes));
    case Value::Type::kF64:
      return Value::Array(Widen<double, double>(bytes));
    default: {
      std::vector<bool> flags(bytes.size());
      for (size_t i = 0; i < bytes.size(); ++i) flags[i] = bytes[i] != std::byte{0};
      return Value::Array(std::move(flags));
    }
  }
}

template <typename Stored, typename Wide>
Result<void> ReadScalar(Cursor& cursor, const std::string& where, Value& value) {
  WINNOW_ASSIGN(const Stored stored, cursor.Read<Stored>(where));
  value.data = static_cast<Wide>(stored);
  return {};
}

Result<void> ReadData(Cursor& cursor, const std::string& where, Value& value) {
  switch (value.type) {
    case Value::Type::kU8:
      return ReadScalar<uint8_t, uint64_t>(cursor, where, value);
    case Value::Type::kI8:
      return ReadScalar<int8_t, int64_t>(cursor, where, value);
    case Value::Type::kU16:
      return ReadScalar<uint16_t, uint64_t>(cursor, where, value);
    case Value::Type::kI16:
      return ReadScalar<int16_t, int64_t>(cursor, where, value);
    case Value::Type::kU32:
      return ReadScalar<uint32_t, uint64_t>(cursor, where, value);
    case Value::Type::kI32:
      return ReadScalar<int32_t, int64_t>(cursor, where, value);
    case Value::Type::kF32:
      return ReadScalar<float, double>(cursor, where, value);
    case Value::Type::kU64:
      return ReadScalar<uint64_t, uint64_t>(cursor, where, value);
    case Value::Type::kI64:
      return ReadScalar<int64_t, int64_t>(cursor, where, value);
    case Value::Type::kF64:
      return ReadScalar<double, double>(cursor, where, value);
    case Value::Type::kBool: {
      WINNOW_ASSIGN(const uint8_t flag, cursor.Read<uint8_t>(where));
      value.data = flag != 0;
      return {};
    }
    case Value::Type::kString: {
      WINNOW_ASSIGN(value.data, cursor.ReadString(where));
      return {};
    }
    case Value::Type::kArray: {
      WINNOW_ASSIGN(const uint32_t id, cursor.Read<uint32_t>(where));
      WINNOW_ASSIGN(value.element_type, TypeFromId(id, where));
      if (value.element_type == Value::Type::kArray)
        return Error{where + ": nested arrays are not allowed"};
      WINNOW_ASSIGN(const uint64_t count, cursor.Read<uint64_t>(where));
      if (count > kMaxArrayElements) {
        return Error{where + ": array of " + std::to_string(count) +
                     " elements, at most 2^30 are allowed"};
      }
      WINNOW_ASSIGN(value.data, ReadArray(cursor, value.element_type, count, where));
      return {};
    }
  }
  return Error{where + ": value type unknown"};
}

Result<uint64_t> ReadCount(Cursor& cursor, const char* what, int64_t min_bytes) {
  WINNOW_ASSIGN(const int64_t count, cursor.Read<int64_t>(what));
  if (count < 0 || count > cursor.remaining() / min_bytes) {
    return Error{std::string(what) + " is " + std::to_string(count) + ", but only " +
                 std::to_string(cursor.remaining()) + " bytes follow"};
  }
  return static_cast<uint64_t>(count);
}

Result<uint64_t> Alignment(const Container& container) {
  for (const auto& [key, value] : container.metadata) {
    if (key != kAlignmentKey) continue;
    if (value.type != Value::Type::kU32) {
      return Error{key + ": type " + std::string(NameOf(value.type)) + ", expected u32"};
    }
    const uint64_t alignment = std::get<uint64_t>(value.data);
    if (!std::has_single_bit(alignment)) {
      return Error{key + " is " + std::to_string(alignment) + ", expected a power of two"};
    }
    return alignment;
  }
  return kDefaultAlignment;
}

// A tensor as announced; its bytes are found once the data section's start is known.
struct Announced {
  uint64_t offset = 0;
  uint64_t n_bytes = 0;
};

Result<void> ReadShape(Cursor& cursor, const std::string& where, Tensor& tensor) {
  WINNOW_ASSIGN(const uint32_t n_dims, cursor.Read<uint32_t>(where));
  if (n_dims < 1 || n_dims > kMaxDims) {
    return Error{where + ": " + std::to_string(n_dims) + " dimensions, expected 1 to 4"};
  }
  tensor.n_dims = static_cast<int>(n_dims);
  int64_t n_elements = 1;
  for (uint32_t dim = 0; dim < n_dims; ++dim) {
    WINNOW_ASSIGN(const int64_t size, cursor.Read<int64_t>(where));
    if (size <= 0) {
      return Error{where + ": dimension " + std::to_string(dim) + " is " + std::to_string(size) +
                   ", expected at least 1"};
    }
    if (__builtin_mul_overflow(n_elements, size, &n_elements)) {
      return Error{where + ": the product of its dimensions does not fit 64 bits"};
    }
    tensor.shape[dim] = size;
  }
  return {};
}

Result<TensorType> ReadType(Cursor& cursor, const std::string& where) {
  WINNOW_ASSIGN(const uint32_t id, cursor.Read<uint32_t>(where));
  const auto type = TensorTypeFromId(id);
  if (type) return *type;
  const std::string_view name = NameOfTypeId(id);
  std::string supported;
  for (uint32_t other = 0; other < 64; ++other) {
    if (!TensorTypeFromId(other)) continue;
    supported += (supported.empty() ? "" : " ") + std::string(NameOfTypeId(other));
  }
  const std::string found = name == "unknown" ? "type " + std::to_string(id) + " unknown"
                                              : "type " + std::string(name) + " is not supported";
  return Error{where + ": " + found + "; supported: " + supported};
}

Result<Announced> ReadTensorInfo(Cursor& cursor, const std::string& where, Tensor& tensor) {
  WINNOW_TRY(ReadShape(cursor, where, tensor));
  WINNOW_ASSIGN(tensor.type, ReadType(cursor, where));
  const TypeInfo& info = InfoOf(tensor.type);
  if (tensor.shape[0] % info.block_elements != 0) {
    return Error{where + ": rows of " + std::to_string(tensor.shape[0]) + " elements, type " +
                 std::string(info.name) + " needs a multiple of " +
                 std::to_string(info.block_elements)};
  }
  int64_t n_bytes = 0;
  if (__builtin_mul_overflow(tensor.n_elements() / info.block_elements, info.block_bytes,
                             &n_bytes)) {
    return Error{where + ": its size in bytes does not fit 64 bits"};
  }
  WINNOW_ASSIGN(const uint64_t offset, cursor.Read<uint64_t>(where));
  return Announced{offset, static_cast<uint64_t>(n_bytes)};
}

// Rounds up; false if the sum does not fit.
bool AlignUp(uint64_t value, uint64_t alignment, uint64_t* aligned) {
  if (__builtin_add_overflow(value, alignment - 1, aligned)) return false;
  *aligned &= ~(alignment - 1);
  return true;
}

Result<void> PlaceTensors(std::span<const std::byte> bytes, uint64_t header_end, uint64_t alignment,
                          const std::vector<Announced>& announced, std::vector<Tensor>& tensors) {
  uint64_t data_start = 0;
  if (!AlignUp(header_end, alignment, &data_start)) {
    return Error{std::string(kAlignmentKey) + " is " + std::to_string(alignment) +
                 ": the data section would overflow"};
  }
  uint64_t expected = 0;  // offsets are the running sum of padded sizes, in file order
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string where = Printable(tensors[i].name);
    const auto [offset, n_bytes] = announced[i];
    if (offset % alignment != 0) {
      return Error{where + ": offset " + std::to_string(offset) +
                   " is not a multiple of the alignment " + std::to_string(alignment)};
    }
    if (offset != expected) {
      return Error{where + ": offset " + std::to_string(offset) + ", expected " +
                   std::to_string(expected)};
    }
    uint64_t end = 0;
    if (__builtin_add_overflow(data_start, offset, &end) ||
        __builtin_add_overflow(end, n_bytes, &end)) {
      return Error{where + ": its place does not fit 64 bits"};
    }
    if (end > bytes.size()) {
      return Error{where + ": the file ends " + std::to_string(end - bytes.size()) +
                   " bytes before this tensor does (" + std::to_string(bytes.size()) +
                   " bytes in the file)"};
    }
    tensors[i].bytes = bytes.subspan(data_start + offset, n_bytes);
    if (!AlignUp(offset + n_bytes, alignment, &expected)) {
      return Error{where + ": the padded size of the data section does not fit 64 bits"};
    }
  }
  return {};
}

Result<uint32_t> ReadHeader(Cursor& cursor) {
  WINNOW_ASSIGN(const uint32_t magic, cursor.Read<uint32_t>("magic"));
  if (magic != kMagic) {
    const std::string_view found(reinterpret_cast<const char*>(&magic), 4);
    return Error{"not a GGUF file: it starts with \"" + Printable(found) + "\", expected \"GGUF\""};
  }
  WINNOW_ASSIGN(const uint32_t version, cursor.Read<uint32_t>("version"));
  if (version != 0 && (version & 0xFFFFu) == 0) {
    return Error{"the file is big-endian (version reads " + std::to_string(version) +
                 "); only little-endian is supported"};
  }
  if (version < 2 || version > 3) {
    return Error{"version " + std::to_string(version) + ", expected 2 or 3"};
  }
  return version;
}

Result<void> ReadMetadata(Cursor& cursor, uint64_t n_values, Container& container) {
  std::unordered_set<std::string_view> seen;
  container.metadata.reserve(n_values);
  for (uint64_t i = 0; i < n_values; ++i) {
    const std::string place = "metadata key " + std::to_string(i);
    WINNOW_ASSIGN(const std::string_view key, cursor.ReadString(place));
    if (key.empty()) return Error{place + " is empty"};
    const std::string where = Printable(key);
    if (!seen.insert(key).second) return Error{where + ": the key appears twice"};
    WINNOW_ASSIGN(const uint32_t id, cursor.Read<uint32_t>(where));
    Value value;
    WINNOW_ASSIGN(value.type, TypeFromId(id, where));
    WINNOW_TRY(ReadData(cursor, where, value));
    container.metadata.emplace_back(std::string(key), std::move(value));
  }
  return {};
}

}  // namespace

std::string_view NameOf(Value::Type type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

Result<Container> ParseContainer(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  Container container;
  WINNOW_ASSIGN(container.version, ReadHeader(cursor));
  WINNOW_ASSIGN(const uint64_t n_tensors, ReadCount(cursor, "tensor count", kMinTensorInfoBytes));
  WINNOW_ASSIGN(const uint64_t n_values, ReadCount(cursor, "metadata count", kMinKeyValueBytes));
  WINNOW_TRY(ReadMetadata(cursor, n_values, container));
  WINNOW_ASSIGN(const uint64_t alignment, Alignment(container));

  std::unordered_set<std::string_view> seen;
  std::vector<Announced> announced;
  announced.reserve(n_tensors);
  container.tensors.reserve(n_tensors);
  for (uint64_t i = 0; i < n_tensors; ++i) {
    const std::string place = "tensor " + std::to_string(i);
    WINNOW_ASSIGN(const std::string_view name, cursor.ReadString(place));
    if (name.empty()) return Error{place + ": its name is empty"};
    if (name.size() > kMaxTensorNameBytes) {
      return Error{Printable(name) + ": a name of " + std::to_string(name.size()) +
                   " bytes, at most 63 are allowed"};
    }
    if (!seen.insert(name).second) return Error{Printable(name) + ": the tensor appears twice"};
    Tensor tensor;
    tensor.name = name;
    WINNOW_ASSIGN(const Announced place_in_file, ReadTensorInfo(cursor, Printable(name), tensor));
    announced.push_back(place_in_file);
    container.tensors.push_back(std::move(tensor));
  }
  WINNOW_TRY(PlaceTensors(bytes, static_cast<uint64_t>(cursor.position()), alignment, announced,
                          container.tensors));
  return container;
}

}  // namespace winnow::gguf

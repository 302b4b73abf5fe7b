#include "gguf/value_reader.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace winnow::gguf {
namespace {

using Type = Value::Type;

constexpr std::array<std::string_view, 13> kTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

// The 64-bit type of the same kind as T.
template <typename T>
using Widened = std::conditional_t<std::is_floating_point_v<T>, double,
                                   std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

// Calls `f` with a value of the C++ type that stores `type` in the file. Requires: `type` is
// numeric.
template <typename F>
auto WithNumber(Type type, F f) {
  switch (type) {
    case Type::kU8:
      return f(uint8_t{});
    case Type::kI8:
      return f(int8_t{});
    case Type::kU16:
      return f(uint16_t{});
    case Type::kI16:
      return f(int16_t{});
    case Type::kU32:
      return f(uint32_t{});
    case Type::kI32:
      return f(int32_t{});
    case Type::kF32:
      return f(float{});
    case Type::kU64:
      return f(uint64_t{});
    case Type::kI64:
      return f(int64_t{});
    case Type::kF64:
      return f(double{});
    case Type::kBool:
    case Type::kString:
    case Type::kArray:
      break;
  }
  WINNOW_CHECK(!"a number's type");
  return f(uint8_t{});
}

Result<Type> ReadType(ByteReader& reader) {
  WINNOW_ASSIGN(const uint32_t id, reader.Read<uint32_t>());
  if (id >= kTypeNames.size()) {
    return Error{"value type " + std::to_string(id) + " unknown (0 to 12 expected)"};
  }
  return static_cast<Type>(id);
}

Result<bool> ReadBool(ByteReader& reader) {
  WINNOW_ASSIGN(const uint8_t byte, reader.Read<uint8_t>());
  if (byte > 1) return Error{"bool of value " + std::to_string(byte) + " (0 or 1 expected)"};
  return byte == 1;
}

// Minimum bytes of an array element in the file.
size_t MinElementBytes(Type type) {
  if (type == Type::kString) return sizeof(uint64_t);
  if (type == Type::kBool) return 1;
  return WithNumber(type, [](auto number) { return sizeof(number); });
}

Error InElement(size_t position, const Error& error) {
  return Error{"element " + std::to_string(position) + ": " + error.message};
}

Result<Value::Array> ReadStrings(ByteReader& reader, uint64_t count) {
  std::vector<std::string_view> strings;
  strings.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const Result<std::string_view> element = reader.ReadString();
    if (!element) return InElement(i, element.error());
    strings.push_back(*element);
  }
  return Value::Array(std::move(strings));
}

Result<Value::Array> ReadBools(ByteReader& reader, uint64_t count) {
  std::vector<bool> bools;
  bools.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const Result<bool> element = ReadBool(reader);
    if (!element) return InElement(i, element.error());
    bools.push_back(*element);
  }
  return Value::Array(std::move(bools));
}

template <typename T>
Value::Array TakeNumbers(ByteReader& reader, uint64_t count) {
  const std::span<const std::byte> bytes = reader.Take(count * sizeof(T));
  std::vector<Widened<T>> numbers(count);
  for (uint64_t i = 0; i < count; ++i) {
    T number;
    std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
    numbers[i] = number;
  }
  return numbers;
}

Result<Value> ReadArray(ByteReader& reader) {
  Value value;
  value.type = Type::kArray;
  WINNOW_ASSIGN(value.element_type, ReadType(reader));
  if (value.element_type == Type::kArray) return Error{"array of arrays (not part of the format)"};
  WINNOW_ASSIGN(const uint64_t count, reader.Read<uint64_t>());
  // Check before allocating: the elements must fit in the rest of the file.
  const uint64_t max = reader.remaining() / MinElementBytes(value.element_type);
  if (count > max) {
    return Error{"array of " + std::to_string(count) + " elements, but at most " +
                 std::to_string(max) + " fit in the " + std::to_string(reader.remaining()) +
                 " bytes left in the file"};
  }
  if (count > kMaxArrayElements) {
    return Error{"array of " + std::to_string(count) + " elements (at most " +
                 std::to_string(kMaxArrayElements) + " expected)"};
  }
  if (value.element_type == Type::kString) {
    WINNOW_ASSIGN(value.data, ReadStrings(reader, count));
  } else if (value.element_type == Type::kBool) {
    WINNOW_ASSIGN(value.data, ReadBools(reader, count));
  } else {
    value.data = WithNumber(value.element_type, [&](auto number) {
      return TakeNumbers<decltype(number)>(reader, count);
    });
  }
  return value;
}

}  // namespace

std::string_view ToString(Value::Type type) { return kTypeNames[static_cast<size_t>(type)]; }

Result<Value> ReadValue(ByteReader& reader) {
  WINNOW_ASSIGN(const Type type, ReadType(reader));
  if (type == Type::kArray) return ReadArray(reader);
  Value value;
  value.type = type;
  if (type == Type::kString) {
    WINNOW_ASSIGN(value.data, reader.ReadString());
  } else if (type == Type::kBool) {
    WINNOW_ASSIGN(value.data, ReadBool(reader));
  } else {
    WINNOW_TRY(WithNumber(type, [&](auto number) -> Result<void> {
      using T = decltype(number);
      WINNOW_ASSIGN(number, reader.Read<T>());
      value.data = static_cast<Widened<T>>(number);
      return {};
    }));
  }
  return value;
}

}  // namespace winnow::gguf

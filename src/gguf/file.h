#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "gguf/tensor_type.h"

namespace winnow::gguf {

// One metadata value. Integers of every width are widened, because GGUF writers disagree about
// widths; `type` keeps the type in the file. Arrays are homogeneous and never nested.
struct Value {
  enum class Type : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64,
  };
  // Array elements; strings are views into the mapped file.
  using Array = std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
                             std::vector<bool>, std::vector<std::string_view>>;
  Type type = Type::kU32;
  Type element_type = Type::kU32;  // arrays only
  std::variant<uint64_t, int64_t, double, bool, std::string_view, Array> data;
};

struct Tensor {
  std::string name;
  TensorType type = TensorType::kF32;
  int n_dims = 0;
  std::array<int64_t, 4> shape = {1, 1, 1, 1};  // shape[0] is the length of a row
  std::span<const std::byte> bytes;             // points into the mapped file

  int64_t n_elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
};

// A GGUF model, version 2 or 3, memory-mapped. The parts of a split model are opened together. Open
// checks every count, length, offset and type, so all views returned lie inside the mapping.
class File {
 public:
  // Errors, with the key or tensor: not readable, not GGUF, truncated, inconsistent, unsupported
  // tensor type.
  static Result<std::shared_ptr<const File>> Open(const std::string& path);
  // For tests and fuzzing: applies the same checks to a copy of bytes in memory. No split files.
  static Result<std::shared_ptr<const File>> Parse(std::span<const std::byte> bytes);
  // A file that is already in memory, such as one linked into the program; `name` stands for its
  // path. No split files. Requires: the bytes are aligned to 64 and outlive the result.
  static Result<std::shared_ptr<const File>> View(std::span<const std::byte> bytes,
                                                  const std::string& name);
  ~File();

  uint32_t version() const;
  const std::string& path() const;                           // as given to Open, or the name
  int64_t file_bytes() const;                                // sum over all parts
  std::vector<std::span<const std::byte>> contents() const;  // of each part
  const std::vector<std::pair<std::string, Value>>& metadata() const;  // in file order
  const std::vector<Tensor>& tensors() const;                          // in file order, all parts

  const Value* Find(std::string_view key) const;  // null if absent
  const Tensor* FindTensor(std::string_view name) const;

  // Typed access. An absent key gives nullopt. A value of another type or out of range gives an
  // error with the key, the type found and the type expected. Any integer type that holds the value
  // is accepted.
  Result<std::optional<uint64_t>> Uint(std::string_view key) const;
  Result<std::optional<int64_t>> Int(std::string_view key) const;
  Result<std::optional<double>> Float(std::string_view key) const;  // integers are accepted too
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::string_view>> String(std::string_view key) const;
  Result<std::optional<std::vector<std::string_view>>> Strings(std::string_view key) const;
  Result<std::optional<std::vector<float>>> Floats(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> Ints(std::string_view key) const;

 private:
  File();
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::gguf

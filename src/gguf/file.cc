#include "gguf/file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "gguf/mapping.h"
#include "gguf/printable.h"
#include "gguf/shard.h"
#include "gguf/split.h"
#include "gguf/value_reader.h"

namespace winnow::gguf {
namespace {

constexpr std::string_view kSplitNumberKey = "split.no";
constexpr std::string_view kSplitCountKey = "split.count";
constexpr std::string_view kSplitTensorsKey = "split.tensors.count";

Error TypeError(std::string_view key, const Value& value, std::string_view expected) {
  std::string found(ToString(value.type));
  if (value.type == Value::Type::kArray)
    found += " of " + std::string(ToString(value.element_type));
  return Error{"gguf: " + Printable(key) + ": type " + found + " (" + std::string(expected) +
               " expected)"};
}

Error RangeError(std::string_view key, std::string_view found, std::string_view expected) {
  return Error{"gguf: " + Printable(key) + ": " + std::string(found) + " (" +
               std::string(expected) + " expected)"};
}

Error InFile(const std::string& path, const Error& error) {
  return Prefixed("gguf: " + path + ": ", error);
}

// Finds a metadata integer of a shard that is not part of a File yet.
Result<std::optional<uint64_t>> FindUint(const Shard& shard, std::string_view key) {
  for (const auto& [name, value] : shard.metadata) {
    if (name != key) continue;
    if (const auto* number = std::get_if<uint64_t>(&value.data)) return std::optional(*number);
    const auto* number = std::get_if<int64_t>(&value.data);
    if (number != nullptr && *number >= 0) return std::optional(static_cast<uint64_t>(*number));
    return Error{std::string(key) + ": a number of 0 or more expected"};
  }
  return std::optional<uint64_t>();
}

Result<void> ExpectUint(const Shard& shard, std::string_view key, uint64_t expected) {
  WINNOW_ASSIGN(const std::optional<uint64_t> found, FindUint(shard, key));
  if (found == expected) return {};
  return Error{std::string(key) + (found ? " is " + std::to_string(*found) : " is missing") + " (" +
               std::to_string(expected) + " expected)"};
}

}  // namespace

struct File::Data {
  std::string path;
  std::vector<std::unique_ptr<const Mapping>> mappings;  // one per part
  Shard shard;                                           // merged from all parts
  // Sorted: a file can choose strings that std::hash maps to one bucket.
  std::map<std::string_view, size_t> keys;   // indices into shard.metadata
  std::map<std::string_view, size_t> names;  // indices into shard.tensors

  static Result<std::shared_ptr<const File>> FromMemory(std::unique_ptr<const Mapping> bytes,
                                                        const std::string& name);

  // Maps and parses one more file; its views stay valid as long as this Data.
  Result<Shard> Load(const std::string& file) {
    Result<std::unique_ptr<const Mapping>> mapping = Mapping::Open(file);
    if (!mapping) return Prefixed("gguf: ", mapping.error());
    mappings.push_back(*std::move(mapping));
    Result<Shard> loaded = ParseShard(mappings.back()->bytes());
    if (!loaded) return InFile(file, loaded.error());
    return loaded;
  }

  // Adds the tensors of the other parts, if `shard` is the first part of a split model.
  Result<void> LoadOtherSplits();

  Result<void> Index() {
    for (size_t i = 0; i < shard.metadata.size(); ++i) keys.emplace(shard.metadata[i].first, i);
    for (size_t i = 0; i < shard.tensors.size(); ++i) {
      if (!names.emplace(shard.tensors[i].name, i).second) {
        return InFile(path, {shard.tensors[i].name + ": tensor appears in two parts"});
      }
    }
    return {};
  }
};

Result<void> File::Data::LoadOtherSplits() {
  const Result<std::optional<uint64_t>> count = FindUint(shard, kSplitCountKey);
  if (!count) return InFile(path, count.error());
  if (count->value_or(1) <= 1) return {};
  const Result<std::optional<uint64_t>> number = FindUint(shard, kSplitNumberKey);
  if (!number) return InFile(path, number.error());

  const uint64_t place = number->value_or(0);
  if (place >= **count) {
    return InFile(path, {"split.no is " + std::to_string(place) + " (less than " +
                         std::to_string(**count) + " expected)"});
  }
  const std::string part = "part " + std::to_string(place + 1) + " of " + std::to_string(**count);
  const std::optional<SplitName> name = ParseSplitName(path);
  if (place != 0) {
    const std::string first = name ? name->ShardPath(1) : "the one whose split.no is 0";
    return InFile(path, {part + ": give the path of the first part, " + first});
  }
  if (!name || name->number != 1 || static_cast<uint64_t>(name->count) != **count) {
    const std::string expected =
        SplitName{.stem = "NAME", .count = static_cast<int>(std::min<uint64_t>(**count, 99999))}
            .ShardPath(1);
    return InFile(path, {part + ", but not named like it (" + expected + " expected)"});
  }
  for (int i = 2; i <= name->count; ++i) {
    const std::string file = name->ShardPath(i);
    WINNOW_ASSIGN(Shard other, Load(file));
    const Result<void> number_fits =
        ExpectUint(other, kSplitNumberKey, static_cast<uint64_t>(i - 1));
    if (!number_fits) return InFile(file, number_fits.error());
    const Result<void> count_fits = ExpectUint(other, kSplitCountKey, **count);
    if (!count_fits) return InFile(file, count_fits.error());
    for (Tensor& tensor : other.tensors) shard.tensors.push_back(std::move(tensor));
  }
  const Result<void> all = ExpectUint(shard, kSplitTensorsKey, shard.tensors.size());
  if (!all) return InFile(path, all.error());
  return {};
}

File::File() : data_(std::make_unique<Data>()) {}
File::~File() = default;

Result<std::shared_ptr<const File>> File::Open(const std::string& path) {
  const std::shared_ptr<File> file(new File());
  file->data_->path = path;
  WINNOW_ASSIGN(file->data_->shard, file->data_->Load(path));
  WINNOW_TRY(file->data_->LoadOtherSplits());
  WINNOW_TRY(file->data_->Index());
  return std::shared_ptr<const File>(file);
}

Result<std::shared_ptr<const File>> File::Data::FromMemory(std::unique_ptr<const Mapping> bytes,
                                                           const std::string& name) {
  const std::shared_ptr<File> file(new File());
  file->data_->path = name;
  file->data_->mappings.push_back(std::move(bytes));
  Result<Shard> shard = ParseShard(file->data_->mappings.back()->bytes());
  if (!shard) return Prefixed("gguf: ", shard.error());
  file->data_->shard = *std::move(shard);
  WINNOW_TRY(file->data_->Index());
  return std::shared_ptr<const File>(file);
}

Result<std::shared_ptr<const File>> File::Parse(std::span<const std::byte> bytes) {
  return Data::FromMemory(Mapping::Copy(bytes), "(memory)");
}

Result<std::shared_ptr<const File>> File::View(std::span<const std::byte> bytes,
                                               const std::string& name) {
  return Data::FromMemory(Mapping::View(bytes), name);
}

uint32_t File::version() const { return data_->shard.version; }
const std::string& File::path() const { return data_->path; }

int64_t File::file_bytes() const {
  int64_t sum = 0;
  for (const auto& mapping : data_->mappings) sum += static_cast<int64_t>(mapping->bytes().size());
  return sum;
}

const std::vector<std::pair<std::string, Value>>& File::metadata() const {
  return data_->shard.metadata;
}
const std::vector<Tensor>& File::tensors() const { return data_->shard.tensors; }

std::vector<std::span<const std::byte>> File::contents() const {
  std::vector<std::span<const std::byte>> contents;
  for (const auto& mapping : data_->mappings) contents.push_back(mapping->bytes());
  return contents;
}

const Value* File::Find(std::string_view key) const {
  const auto found = data_->keys.find(key);
  return found == data_->keys.end() ? nullptr : &data_->shard.metadata[found->second].second;
}

const Tensor* File::FindTensor(std::string_view name) const {
  const auto found = data_->names.find(name);
  return found == data_->names.end() ? nullptr : &data_->shard.tensors[found->second];
}

Result<std::optional<uint64_t>> File::Uint(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<uint64_t>();
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return std::optional(*number);
  if (const auto* number = std::get_if<int64_t>(&value->data)) {
    if (*number >= 0) return std::optional(static_cast<uint64_t>(*number));
    return RangeError(key, std::to_string(*number), "0 or more");
  }
  return TypeError(key, *value, "integer");
}

Result<std::optional<int64_t>> File::Int(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const auto* number = std::get_if<int64_t>(&value->data)) return std::optional(*number);
  if (const auto* number = std::get_if<uint64_t>(&value->data)) {
    if (std::in_range<int64_t>(*number)) return std::optional(static_cast<int64_t>(*number));
    return RangeError(key, std::to_string(*number), "less than 2^63");
  }
  return TypeError(key, *value, "integer");
}

Result<std::optional<double>> File::Float(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* number = std::get_if<double>(&value->data)) return std::optional(*number);
  if (const auto* number = std::get_if<int64_t>(&value->data)) {
    return std::optional(static_cast<double>(*number));
  }
  if (const auto* number = std::get_if<uint64_t>(&value->data)) {
    return std::optional(static_cast<double>(*number));
  }
  return TypeError(key, *value, "number");
}

Result<std::optional<bool>> File::Bool(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* boolean = std::get_if<bool>(&value->data)) return std::optional(*boolean);
  return TypeError(key, *value, "bool");
}

Result<std::optional<std::string_view>> File::String(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (const auto* text = std::get_if<std::string_view>(&value->data)) return std::optional(*text);
  return TypeError(key, *value, "string");
}

Result<std::optional<std::vector<std::string_view>>> File::Strings(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<std::string_view>>();
  if (const auto* array = std::get_if<Value::Array>(&value->data)) {
    if (const auto* texts = std::get_if<std::vector<std::string_view>>(array)) {
      return std::optional(*texts);
    }
  }
  return TypeError(key, *value, "array of strings");
}

Result<std::optional<std::vector<float>>> File::Floats(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  if (const auto* array = std::get_if<Value::Array>(&value->data)) {
    if (const auto* numbers = std::get_if<std::vector<double>>(array)) {
      std::vector<float> floats;
      floats.reserve(numbers->size());
      for (const double number : *numbers) {
        if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max()) {
          return RangeError(key, std::to_string(number), "the range of f32");
        }
        floats.push_back(static_cast<float>(number));
      }
      return std::optional(std::move(floats));
    }
  }
  return TypeError(key, *value, "array of floats");
}

Result<std::optional<std::vector<int64_t>>> File::Ints(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  if (const auto* array = std::get_if<Value::Array>(&value->data)) {
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(array)) {
      return std::optional(*numbers);
    }
    if (const auto* numbers = std::get_if<std::vector<uint64_t>>(array)) {
      std::vector<int64_t> ints;
      ints.reserve(numbers->size());
      for (const uint64_t number : *numbers) {
        if (!std::in_range<int64_t>(number)) {
          return RangeError(key, std::to_string(number), "less than 2^63");
        }
        ints.push_back(static_cast<int64_t>(number));
      }
      return std::optional(std::move(ints));
    }
  }
  return TypeError(key, *value, "array of integers");
}

}  // namespace winnow::gguf

#include "gguf/file.h"

#include <cmath>
#include <limits>
#include <unordered_map>

#include "gguf/container.h"
#include "gguf/cursor.h"
#include "gguf/mapping.h"
#include "gguf/split.h"

namespace winnow::gguf {

struct File::Data {
  std::string path;
  uint32_t version = 0;
  std::vector<std::unique_ptr<Mapping>> mappings;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<Tensor> tensors;
  std::unordered_map<std::string_view, const Value*> value_of;
  std::unordered_map<std::string_view, const Tensor*> tensor_of;

  // Once metadata and tensors are complete: they do not move any more.
  void BuildIndex() {
    for (const auto& [key, value] : metadata) value_of.emplace(key, &value);
    for (const Tensor& tensor : tensors) tensor_of.emplace(tensor.name, &tensor);
  }
};

File::File() : data_(std::make_unique<Data>()) {}
File::~File() = default;

namespace {

Error In(const std::string& path, const Error& error) { return Error{path + ": " + error.message}; }

}  // namespace

Result<std::shared_ptr<const File>> File::Parse(std::span<const std::byte> bytes) {
  auto mapping = Mapping::Copy(bytes);
  auto container = ParseContainer(mapping->bytes());
  if (!container) return Error{"gguf: " + container.error().message};
  std::shared_ptr<File> file(new File);
  file->data_->version = container->version;
  file->data_->metadata = std::move(container->metadata);
  file->data_->tensors = std::move(container->tensors);
  file->data_->mappings.push_back(std::move(mapping));
  file->data_->BuildIndex();
  return std::shared_ptr<const File>(std::move(file));
}

Result<std::shared_ptr<const File>> File::Open(const std::string& path) {
  std::shared_ptr<File> file(new File);
  Data& data = *file->data_;
  data.path = path;

  auto mapping = Mapping::OpenFile(path);
  if (!mapping) return In(path, mapping.error());
  auto first = ParseContainer((*mapping)->bytes());
  if (!first) return In(path, Error{"gguf: " + first.error().message});
  data.version = first->version;
  data.metadata = std::move(first->metadata);
  data.tensors = std::move(first->tensors);
  data.mappings.push_back(std::move(*mapping));
  data.BuildIndex();

  auto plan = PlanSplits(*file, path);
  if (!plan) return In(path, Error{"gguf: " + plan.error().message});
  if (plan->paths.empty()) return std::shared_ptr<const File>(std::move(file));

  for (size_t i = 0; i < plan->paths.size(); ++i) {
    const std::string& sibling = plan->paths[i];
    auto next = Mapping::OpenFile(sibling);
    if (!next)
      return In(sibling, Error{next.error().message + " (part " + std::to_string(i + 2) +
                               " of the split model)"});
    auto part = ParseContainer((*next)->bytes());
    if (!part) return In(sibling, Error{"gguf: " + part.error().message});
    WINNOW_TRY(CheckSplit(*part, static_cast<int64_t>(i) + 1, plan->count, sibling));
    for (Tensor& tensor : part->tensors) data.tensors.push_back(std::move(tensor));
    data.mappings.push_back(std::move(*next));
  }
  data.tensor_of.clear();  // the tensors have moved
  for (const Tensor& tensor : data.tensors) {
    if (!data.tensor_of.emplace(tensor.name, &tensor).second) {
      return In(path, Error{"gguf: " + Printable(tensor.name) + ": the tensor is in two parts"});
    }
  }
  if (plan->n_tensors && *plan->n_tensors != data.tensors.size()) {
    return In(path,
              Error{"gguf: split.tensors.count is " + std::to_string(*plan->n_tensors) +
                    ", but the parts hold " + std::to_string(data.tensors.size()) + " tensors"});
  }
  return std::shared_ptr<const File>(std::move(file));
}

uint32_t File::version() const { return data_->version; }
const std::string& File::path() const { return data_->path; }
const std::vector<std::pair<std::string, Value>>& File::metadata() const { return data_->metadata; }
const std::vector<Tensor>& File::tensors() const { return data_->tensors; }

int64_t File::file_bytes() const {
  int64_t total = 0;
  for (const auto& mapping : data_->mappings)
    total += static_cast<int64_t>(mapping->bytes().size());
  return total;
}

const Value* File::Find(std::string_view key) const {
  const auto found = data_->value_of.find(key);
  return found == data_->value_of.end() ? nullptr : found->second;
}

const Tensor* File::FindTensor(std::string_view name) const {
  const auto found = data_->tensor_of.find(name);
  return found == data_->tensor_of.end() ? nullptr : found->second;
}

namespace {

std::string TypeOf(const Value& value) {
  if (value.type != Value::Type::kArray) return std::string(NameOf(value.type));
  return "array of " + std::string(NameOf(value.element_type));
}

Error WrongType(std::string_view key, const Value& value, const char* expected) {
  return Error{"gguf: " + Printable(key) + ": type " + TypeOf(value) + ", expected " + expected};
}

template <typename T>
const T* ArrayOf(const Value& value) {
  const auto* array = std::get_if<Value::Array>(&value.data);
  return array == nullptr ? nullptr : std::get_if<T>(array);
}

}  // namespace

Result<std::optional<uint64_t>> File::Uint(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<uint64_t>();
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return std::optional(*number);
  if (const auto* number = std::get_if<int64_t>(&value->data)) {
    if (*number >= 0) return std::optional(static_cast<uint64_t>(*number));
    return Error{"gguf: " + Printable(key) + " is " + std::to_string(*number) +
                 ", expected at least 0"};
  }
  return WrongType(key, *value, "an integer");
}

Result<std::optional<int64_t>> File::Int(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const auto* number = std::get_if<int64_t>(&value->data)) return std::optional(*number);
  if (const auto* number = std::get_if<uint64_t>(&value->data)) {
    if (*number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return std::optional(static_cast<int64_t>(*number));
    }
    return Error{"gguf: " + Printable(key) + " is " + std::to_string(*number) +
                 ", expected less than 2^63"};
  }
  return WrongType(key, *value, "an integer");
}

Result<std::optional<double>> File::Float(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* number = std::get_if<double>(&value->data)) return std::optional(*number);
  if (const auto* number = std::get_if<int64_t>(&value->data))
    return std::optional(static_cast<double>(*number));
  if (const auto* number = std::get_if<uint64_t>(&value->data))
    return std::optional(static_cast<double>(*number));
  return WrongType(key, *value, "a number");
}

Result<std::optional<bool>> File::Bool(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* flag = std::get_if<bool>(&value->data)) return std::optional(*flag);
  return WrongType(key, *value, "bool");
}

Result<std::optional<std::string_view>> File::String(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (const auto* text = std::get_if<std::string_view>(&value->data)) return std::optional(*text);
  return WrongType(key, *value, "string");
}

Result<std::optional<std::vector<std::string_view>>> File::Strings(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<std::string_view>>();
  if (const auto* strings = ArrayOf<std::vector<std::string_view>>(*value))
    return std::optional(*strings);
  return WrongType(key, *value, "array of string");
}

Result<std::optional<std::vector<float>>> File::Floats(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  if (const auto* numbers = ArrayOf<std::vector<double>>(*value)) {
    std::vector<float> floats(numbers->size());
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>((*numbers)[i]);
    return std::optional(std::move(floats));
  }
  return WrongType(key, *value, "array of f32");
}

Result<std::optional<std::vector<int64_t>>> File::Ints(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  if (const auto* numbers = ArrayOf<std::vector<int64_t>>(*value)) return std::optional(*numbers);
  if (const auto* numbers = ArrayOf<std::vector<uint64_t>>(*value)) {
    std::vector<int64_t> ints(numbers->size());
    for (size_t i = 0; i < ints.size(); ++i) {
      if ((*numbers)[i] > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Error{"gguf: " + Printable(key) + "[" + std::to_string(i) + "] is " +
                     std::to_string((*numbers)[i]) + ", expected less than 2^63"};
      }
      ints[i] = static_cast<int64_t>((*numbers)[i]);
    }
    return std::optional(std::move(ints));
  }
  return WrongType(key, *value, "array of integers");
}

}  // namespace winnow::gguf

#include "safetensors_file.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace winnow::oracle {
namespace {

template <typename T>
std::vector<T> Elements(const std::string& bytes, size_t begin, size_t end) {
  std::vector<T> values((end - begin) / sizeof(T));
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(T));
  return values;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{path + ": cannot be opened"};
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) return Error{path + ": shorter than its header"};
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const size_t data = sizeof(header_bytes) + header_bytes;
  if (header_bytes > bytes.size() || data > bytes.size()) {
    return Error{path + ": shorter than its header"};
  }
  const auto header = nlohmann::json::parse(bytes.begin() + sizeof(header_bytes),
                                            bytes.begin() + static_cast<ptrdiff_t>(data), nullptr,
                                            /*allow_exceptions=*/false);
  if (!header.is_object()) return Error{path + ": its header is not a JSON object"};
  SafetensorsFile file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      file.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    Tensor tensor;
    tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
    const std::string type = entry.at("dtype").get<std::string>();
    const size_t begin = data + entry.at("data_offsets").at(0).get<size_t>();
    const size_t end = data + entry.at("data_offsets").at(1).get<size_t>();
    if (begin > end || end > bytes.size()) return Error{path + ": " + name + ": beyond the end"};
    if (type == "F32") {
      tensor.floats = Elements<float>(bytes, begin, end);
    } else if (type == "I32") {
      tensor.integers = Elements<int32_t>(bytes, begin, end);
    } else {
      return Error{path + ": " + name + ": element type " + type + ", expected F32 or I32"};
    }
    file.tensors[name] = std::move(tensor);
  }
  return file;
}

}  // namespace winnow::oracle

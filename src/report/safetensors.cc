#include "report/safetensors.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "report/record.h"

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

namespace winnow::report {
namespace {

constexpr int64_t kBytesPerValue = 4;  // of both types

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::vector<Tensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer;
  writer.path_ = path;
  Record header;
  if (!metadata.empty()) {
    Record strings;
    for (const auto& [key, value] : metadata) strings.Add(key, value);
    header.Add("__metadata__", strings);
  }
  for (const Tensor& tensor : tensors) {
    int64_t n_values = 1;
    for (const int64_t size : tensor.shape) n_values *= size;
    const int64_t begin = writer.expected_bytes_;
    writer.expected_bytes_ += n_values * kBytesPerValue;
    header.Add(tensor.name, Record{{"dtype", tensor.type == Type::kF32 ? "F32" : "I32"},
                                   {"shape", MakeList(tensor.shape)},
                                   {"data_offsets", List{begin, writer.expected_bytes_}}});
  }
  std::string json = ToJson(header);
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  const uint64_t n_header = json.size();
  writer.file_.open(path, std::ios::binary | std::ios::trunc);
  writer.file_.write(reinterpret_cast<const char*>(&n_header), sizeof(n_header));
  writer.file_.write(json.data(), static_cast<std::streamsize>(json.size()));
  if (!writer.file_) return Error{path + ": cannot be written"};
  return writer;
}

Result<void> SafetensorsWriter::Write(std::span<const float> values) {
  return WriteBytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

Result<void> SafetensorsWriter::Write(std::span<const int32_t> values) {
  return WriteBytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

Result<void> SafetensorsWriter::WriteBytes(const char* bytes, size_t n) {
  file_.write(bytes, static_cast<std::streamsize>(n));
  written_bytes_ += static_cast<int64_t>(n);
  if (!file_) return Error{path_ + ": writing failed (disk full?)"};
  return {};
}

Result<void> SafetensorsWriter::Finish() {
  WINNOW_CHECK(written_bytes_ == expected_bytes_);
  file_.close();
  if (!file_) return Error{path_ + ": writing failed (disk full?)"};
  return {};
}

}  // namespace winnow::report

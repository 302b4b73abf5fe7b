#include "report/safetensors.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "report/record.h"

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

namespace winnow::report {
namespace {

constexpr int64_t kWrittenValueBytes = 4;  // F32 and I32

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, const std::vector<Tensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  WINNOW_ASSIGN(OutputFile file, OutputFile::Create(path));
  SafetensorsWriter writer(std::move(file));
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
    writer.expected_bytes_ += n_values * kWrittenValueBytes;
    header.Add(tensor.name, Record{{"dtype", tensor.type == Type::kF32 ? "F32" : "I32"},
                                   {"shape", MakeList(tensor.shape)},
                                   {"data_offsets", List{begin, writer.expected_bytes_}}});
  }
  std::string json = ToJson(header);
  json.resize((json.size() + 7) / 8 * 8, ' ');  // aligns the data to 8 bytes
  const uint64_t n_header = json.size();
  WINNOW_TRY(writer.file_.Write({reinterpret_cast<const char*>(&n_header), sizeof(n_header)}));
  WINNOW_TRY(writer.file_.Write(json));
  return writer;
}

Result<void> SafetensorsWriter::Write(std::span<const float> values) {
  return WriteBytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

Result<void> SafetensorsWriter::Write(std::span<const int32_t> values) {
  return WriteBytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

Result<void> SafetensorsWriter::WriteBytes(const char* bytes, size_t n) {
  written_bytes_ += static_cast<int64_t>(n);
  return file_.Write({bytes, n});
}

Result<void> SafetensorsWriter::Finish() {
  WINNOW_CHECK(written_bytes_ == expected_bytes_);
  return file_.Commit();
}

}  // namespace winnow::report

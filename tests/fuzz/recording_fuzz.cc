// Safetensors files and recordings of attention, the input of `winnow replay`.
//
// The input is a JSON header up to the first zero byte, then the bytes of the tensors; the length
// before the header is added here. If the input begins with a zero byte, the rest is a whole file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "replay/recording.h"
#include "report/safetensors_reader.h"
#include "temporary_folder.h"

namespace {

using winnow::replay::Recording;
using winnow::report::SafetensorsReader;

std::string FileFrom(std::string_view input) {
  if (input.starts_with('\0')) return std::string(input.substr(1));
  const size_t end = std::min(input.find('\0'), input.size());
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(end >> (8 * i) & 0xFF);
  bytes += input.substr(0, end);
  if (end < input.size()) bytes += input.substr(end + 1);
  return bytes;
}

void ReadTensors(const std::string& path) {
  auto reader = SafetensorsReader::Open(path);
  if (!reader) return;
  for (const auto& [name, tensor] : reader->tensors()) {
    WINNOW_CHECK(reader->Find(name) == &tensor && tensor.n_values >= 0);
    const auto n = static_cast<size_t>(std::min<int64_t>(tensor.n_values, 64));
    std::vector<float> floats(n);
    std::vector<int32_t> integers(n);
    const int64_t first = tensor.n_values - static_cast<int64_t>(n);
    // The tensor's type decides which of the two is an error.
    const bool read = reader->Read(tensor, first, floats).has_value() ||
                      reader->Read(tensor, first, integers).has_value();
    WINNOW_CHECK(read || (tensor.type != "F32" && tensor.type != "I32"));
  }
}

void ReadRecording(const std::string& path, bool before_rope) {
  auto recording = Recording::Open(path, before_rope);
  if (!recording) return;
  std::vector<float> out;
  for (int layer = 0; layer < recording->n_layers(); ++layer) {
    for (const auto kind :
         {Recording::Kind::kQueries, Recording::Kind::kKeys, Recording::Kind::kValues}) {
      for (const bool rotated : {true, false}) {
        if (!rotated && (!before_rope || kind == Recording::Kind::kValues)) continue;
        WINNOW_CHECK(recording->Read(kind, rotated, layer, 0, recording->n_prompt(), out));
        WINNOW_CHECK(recording->Read(kind, rotated, layer, recording->n_tokens() - 1, 1, out));
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const winnow::fuzz::TemporaryFolder folder;
  const std::string path =
      folder.Write("recording.safetensors", FileFrom({reinterpret_cast<const char*>(data), size}));
  ReadTensors(path);
  ReadRecording(path, false);
  ReadRecording(path, true);
  return 0;
}

// Models in several files. Each part states the number of parts, its own number and the total
// number of tensors; the input decides whether they agree, and which bytes of a part are wrong.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzzed_data.h"
#include "gguf/file.h"
#include "gguf/split.h"
#include "gguf/testing/builder.h"
#include "temporary_folder.h"

namespace {

using winnow::gguf::File;
using winnow::gguf::Tensor;
using winnow::gguf::testing::Builder;

void ReadAll(const File& file) {
  volatile unsigned sum = 0;
  for (const Tensor& tensor : file.tensors()) {
    WINNOW_CHECK(file.FindTensor(tensor.name) == &tensor);
    for (const std::byte byte : tensor.bytes) sum = sum + std::to_integer<unsigned>(byte);
  }
  int64_t n_bytes = 0;
  for (const auto contents : file.contents()) n_bytes += std::ssize(contents);
  WINNOW_CHECK(n_bytes == file.file_bytes());
}

std::string PartFrom(FuzzedData& input, int place, int count, int n_tensors) {
  Builder builder;
  const auto about = [&](int right) {
    return input.ConsumeIntegralInRange<int>(0, 15) == 0 ? input.ConsumeIntegral<int32_t>() : right;
  };
  if (place == 0) builder.String("general.architecture", "llama");
  builder.Int32("split.no", about(place)).Int32("split.count", about(count));
  builder.Int32("split.tensors.count", about(n_tensors));
  const bool named_alike = input.ConsumeIntegralInRange<int>(0, 15) == 0;
  builder.TensorF32(named_alike ? "t" : "t" + std::to_string(place), {2}, {1, 2});
  const std::vector<std::byte> bytes = builder.Bytes();
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const int n_wrong = input.ConsumeIntegralInRange<int>(0, 7) == 0 ? 2 : 0;
  for (int i = 0; i < n_wrong; ++i) {
    text[input.ConsumeIntegralInRange<size_t>(0, text.size() - 1)] =
        static_cast<char>(input.ConsumeIntegral<uint8_t>());
  }
  if (input.ConsumeIntegralInRange<int>(0, 15) == 0) {
    text.resize(input.ConsumeIntegralInRange<size_t>(0, text.size()));
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const winnow::fuzz::TemporaryFolder folder;
  FuzzedData input(data, size);
  folder.Clear();
  const int count = input.ConsumeIntegralInRange<int>(1, 4);
  const winnow::gguf::SplitName name = {.stem = folder.Path("model"), .number = 1, .count = count};
  for (int place = 0; place < count; ++place) {
    const std::string part = PartFrom(input, place, count, count);
    if (input.ConsumeIntegralInRange<int>(0, 15) == 0) continue;  // missing
    folder.Write(std::string_view(name.ShardPath(place + 1)).substr(folder.path().size() + 1),
                 part);
  }
  const auto file = File::Open(name.ShardPath(input.ConsumeIntegralInRange<int>(1, count)));
  if (file) {
    ReadAll(**file);
  } else {
    for (const char c : file.error().message) WINNOW_CHECK(c >= 0x20 && c <= 0x7e);
  }
  return 0;
}

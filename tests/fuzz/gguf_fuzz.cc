// Feeds arbitrary bytes to the GGUF parser and reads everything that it accepts, the
// hyperparameters of a model too.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "gguf/file.h"
#include "gguf/summary.h"
#include "model/model.h"

namespace {

using winnow::gguf::File;
using winnow::gguf::Tensor;

// Uses each byte so that the compiler cannot drop the read and the sanitizer checks it.
void Touch(std::span<const std::byte> bytes) {
  volatile unsigned sum = 0;
  for (const std::byte byte : bytes) sum = sum + std::to_integer<unsigned>(byte);
}

void Touch(std::string_view text) { Touch(std::as_bytes(std::span(text))); }

void ReadAll(const File& file) {
  for (const auto& [key, value] : file.metadata()) {
    WINNOW_CHECK(file.Find(key) == &value);
    // Getters that do not fit the value's type return errors, which is fine too.
    if (const auto text = file.String(key)) Touch(**text);
    if (const auto texts = file.Strings(key)) {
      for (const std::string_view text : **texts) Touch(text);
    }
    (void)file.Uint(key).has_value();
    (void)file.Int(key).has_value();
    (void)file.Float(key).has_value();
    (void)file.Bool(key).has_value();
    (void)file.Floats(key).has_value();
    (void)file.Ints(key).has_value();
  }
  for (const Tensor& tensor : file.tensors()) {
    WINNOW_CHECK(file.FindTensor(tensor.name) == &tensor);
    const int64_t n_rows = tensor.n_elements() / tensor.shape[0];
    WINNOW_CHECK(winnow::gguf::RowBytes(tensor.type, tensor.shape[0]) * n_rows ==
                 static_cast<int64_t>(tensor.bytes.size()));
    Touch(tensor.bytes);
  }
  WINNOW_CHECK(winnow::gguf::Summarize(file).tensors.size() == file.tensors().size());
}

// Error messages go to the terminal: one line of printable text.
void CheckMessage(std::string_view message) {
  WINNOW_CHECK(!message.empty());
  for (const char c : message) WINNOW_CHECK(c >= 0x20 && c <= 0x7e);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = File::Parse(std::as_bytes(std::span(data, size)));
  if (!file) {
    CheckMessage(file.error().message);
    return 0;
  }
  ReadAll(**file);
  const auto shape = winnow::model::ReadHyperparameters(**file);
  if (!shape) CheckMessage(shape.error().message);
  return 0;
}

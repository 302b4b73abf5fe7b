// make_seeds FOLDER: writes initial inputs into the targets' folders that exist there: GGUF files
// that together hold every value type, every tensor type and a model's hyperparameters, and a file
// of log-probabilities.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "eval/metrics/log_probs_file.h"
#include "gguf/testing/builder.h"

namespace {

using winnow::gguf::TypeInfo;
using winnow::gguf::testing::Builder;

// One scalar and one array of every value type (0 to 12, without arrays of arrays).
Builder EveryValueType() {
  Builder builder;
  const std::vector<std::byte> zeros(8);
  const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
  for (uint32_t type = 0; type <= 12; ++type) {
    if (type == 9) continue;
    builder.Raw("scalar." + std::to_string(type), type, std::span(zeros).first(sizes[type]));
    std::vector<std::byte> array(4 + 8 + 2 * sizes[type]);
    array[0] = static_cast<std::byte>(type);
    array[4] = std::byte{2};
    builder.Raw("array." + std::to_string(type), 9, array);
  }
  return builder;
}

Builder EveryTensorType() {
  Builder builder;
  builder.String("general.architecture", "llama").String("general.name", "seed");
  for (const TypeInfo& info : winnow::gguf::SupportedTypes()) {
    const std::vector<std::byte> bytes(2 * static_cast<size_t>(info.block_bytes));
    builder.Tensor("t." + std::string(info.name), info.type, {info.block_elements, 2}, bytes);
  }
  return builder;
}

// Everything that ReadHyperparameters reads, and no tensors.
Builder Hyperparameters() {
  Builder builder;
  builder.String("general.architecture", "llama").String("general.name", "seed");
  for (const char* key : {"block_count", "context_length", "embedding_length", "vocab_size",
                          "attention.head_count", "attention.head_count_kv"}) {
    builder.Uint32("llama." + std::string(key), 2);
  }
  return builder.Uint32s("llama.feed_forward_length", {8, 8})
      .Uint32("llama.attention.key_length", 4)
      .Uint32("llama.attention.value_length", 4)
      .Uint32("llama.attention.sliding_window", 4)
      .Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Float32s("llama.attention.scale", {1, 1})
      .Uint32("llama.rope.dimension_count", 4)
      .Float32("llama.rope.freq_base", 10000)
      .String("llama.rope.scaling.type", "yarn")
      .Float32("llama.rope.scaling.factor", 2)
      .Uint32("llama.expert_count", 0);
}

Builder Aligned() {
  Builder builder;
  builder.alignment = 8;
  builder.version = 2;
  return builder.TensorF32("a", {1}, {1}).TensorF32("b", {2, 1, 1, 1}, {1, 2});
}

void WriteLogProbs(const std::string& path) {
  const winnow::eval::LogProbsHeader header = {
      .window = 4, .vocabulary = 3, .n_windows = 2, .tokens = {0, 1, 2, 1, 0, 1, 2, 1}};
  auto writer = winnow::eval::LogProbsWriter::Create(path, header);
  if (!writer) return;
  for (int64_t row = 0; row < header.n_windows * header.rows_per_window(); ++row) {
    (void)writer->Write(std::vector<float>{0, 1, static_cast<float>(row)}).has_value();
  }
  (void)writer->Finish().has_value();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  EveryValueType().Write(folder + "/gguf/values.gguf");
  EveryTensorType().Write(folder + "/gguf/tensors.gguf");
  Hyperparameters().Write(folder + "/gguf/hyperparameters.gguf");
  Aligned().Write(folder + "/gguf/aligned.gguf");
  Builder().Write(folder + "/gguf/empty.gguf");
  WriteLogProbs(folder + "/log_probs/base");
  return 0;
}

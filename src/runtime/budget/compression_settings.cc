#include "runtime/budget/compression_settings.h"

#include <utility>
#include <variant>

#include "compression/registry.h"

namespace winnow::runtime {
namespace {

using Made = std::variant<CompressionOptions, CompressionProblem>;

Made Make(const Compression& wanted, const CompressionFieldNames& words) {
  auto method = compression::MakeMethod(wanted.method.empty() ? "full" : wanted.method);
  if (!method) return CompressionProblem{words.method, method.error().message};
  if (wanted.method.empty() && !wanted.decode.empty()) {
    return CompressionProblem{words.decode,
                              "a method for generated tokens needs one for the prompt"};
  }
  if (!wanted.decode.empty()) {
    const auto decode = compression::MakeMethod(wanted.decode);
    if (!decode) return CompressionProblem{words.decode, decode.error().message};
    method = compression::WithDecode(*std::move(method), *decode);
    if (!method) return CompressionProblem{words.decode, method.error().message};
  }
  CompressionOptions options = {.size = wanted.size,
                                .ratio = wanted.ratio,
                                .memory_bytes = wanted.memory_bytes,
                                .quality = wanted.quality,
                                .prefill_chunk = wanted.prefill_chunk};
  // The full cache has nothing to decide: without a method the engine takes its plain path.
  if ((*method)->traits().spec != "full") options.method = *method;
  if (auto problem = FindProblem(options, words)) return *std::move(problem);
  return options;
}

}  // namespace

Result<CompressionOptions> MakeCompression(const Compression& wanted,
                                           const CompressionFieldNames& words,
                                           CompressionProblem* problem) {
  Made made = Make(wanted, words);
  if (auto* options = std::get_if<CompressionOptions>(&made)) return std::move(*options);
  CompressionProblem& found = std::get<CompressionProblem>(made);
  Error error = ErrorFrom(found);
  if (problem != nullptr) *problem = std::move(found);
  return error;
}

}  // namespace winnow::runtime

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/sanitizer.h"
#include "model/testing/tiny_model.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"

// For tests: engines on tiny random models with a vocabulary, and their inputs.
namespace winnow::runtime::testing {

inline constexpr int kVocabulary = 70;

// Tests run in parallel, and their loops are too short to divide: a second thread in each would
// wait for a core. ThreadSanitizer needs several threads.
#ifdef WINNOW_SANITIZES_THREADS
inline constexpr int kThreads = 2;
#else
inline constexpr int kThreads = 1;
#endif

inline std::shared_ptr<const gguf::File> TinyFile(const model::testing::TinySpec& spec) {
  auto builder = model::testing::TinyBuilder(spec);
  model::testing::AddTinyTokenizer(builder, kVocabulary);
  return gguf::File::Parse(builder.Bytes()).value();
}

// The same, but the embedding of one token contains a NaN.
inline std::shared_ptr<const gguf::File> TinyFileWithNan(const model::testing::TinySpec& spec,
                                                         TokenId token) {
  auto builder = model::testing::TinyBuilder(spec);
  model::testing::AddTinyTokenizer(builder, kVocabulary);
  std::vector<std::byte> bytes = builder.Bytes();
  const auto file = gguf::File::Parse(bytes).value();
  for (const gguf::Tensor& tensor : file->tensors()) {
    if (tensor.name != "token_embd.weight") continue;
    const auto offset = static_cast<size_t>(tensor.bytes.data() - file->contents()[0].data());
    const size_t row_bytes = tensor.bytes.size() / kVocabulary;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bytes.data() + offset + static_cast<size_t>(token) * row_bytes, &nan, sizeof(nan));
  }
  return gguf::File::Parse(bytes).value();
}

inline std::unique_ptr<Engine> TinyEngine(const model::testing::TinySpec& spec,
                                          EngineOptions options = {.n_threads = kThreads}) {
  options.file = TinyFile(spec);
  NullLog log;
  auto engine = Engine::Open(options, log);
  if (!engine) ADD_FAILURE() << engine.error().message;
  return std::move(engine).value();
}

inline std::vector<TokenId> Tokens(int n) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens.push_back((i * 31 + 5) % kVocabulary);
  return tokens;
}

inline std::vector<float> Logits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

}  // namespace winnow::runtime::testing

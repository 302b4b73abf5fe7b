#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "model/testing/tiny_model.h"
#include "runtime/engine.h"
#include "runtime/session.h"

// For tests: engines on tiny random models with a vocabulary, and what is fed to them.
namespace winnow::runtime::testing {

inline constexpr int kVocabulary = 70;

inline std::shared_ptr<const gguf::File> TinyFile(const model::testing::TinySpec& spec) {
  auto builder = model::testing::TinyBuilder(spec);
  model::testing::AddTinyTokenizer(builder, kVocabulary);
  return gguf::File::Parse(builder.Bytes()).value();
}

inline std::unique_ptr<Engine> TinyEngine(const model::testing::TinySpec& spec,
                                          EngineOptions options = {.n_threads = 2}) {
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

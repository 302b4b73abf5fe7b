#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "compression/registry.h"
#include "compression/testing/every_method.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"
#include "runtime/testing/tiny_engine.h"

// Sessions on tiny random models, and the specs of all registered methods.
namespace winnow::conformance {

using runtime::CompressionOptions;
using runtime::Engine;
using runtime::Session;
using runtime::TokenId;

using compression::testing::MethodNames;
using compression::testing::MethodsAndVariants;
using runtime::testing::kThreads;
using runtime::testing::kVocabulary;

// A tiny model with 4 query heads and `n_kv_heads` KV heads. The tests of a process share one
// engine per configuration: a session's results do not depend on other sessions.
inline std::shared_ptr<Engine> OpenTiny(int n_kv_heads, int n_threads = kThreads, int dim = 16,
                                        const std::string& target = {},
                                        gguf::TensorType type = gguf::TensorType::kF32) {
  static std::map<std::tuple<int, int, int, std::string, gguf::TensorType>, std::shared_ptr<Engine>>
      engines;
  std::shared_ptr<Engine>& engine = engines[{n_kv_heads, n_threads, dim, target, type}];
  if (engine) return engine;
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.n_kv_heads = n_kv_heads;
  spec.key_dim = dim;
  spec.value_dim = dim;
  spec.context = 4096;
  spec.type = type;
  engine = runtime::testing::TinyEngine(spec, {.n_threads = n_threads, .target = target});
  return engine;
}

inline std::vector<TokenId> Tokens(int n, int seed = 5) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * i * 7 + i * 31 + seed) % kVocabulary);
  return tokens;
}

struct SessionShape {
  int64_t size = 0;
  int64_t chunk = 0;
  kernels::TensorType type = kernels::TensorType::kF16;
  int64_t context = 2048;
};

// If `spec` is empty, with the full cache.
inline std::unique_ptr<Session> Open(Engine& engine, const std::string& spec,
                                     const SessionShape& shape = {}) {
  CompressionOptions compression;
  if (!spec.empty()) {
    auto method = compression::MakeMethod(spec);
    EXPECT_TRUE(method.has_value()) << method.error().message;
    compression.method = *method;
    if (compression.method->traits().budget.needed) compression.size = shape.size;
  }
  compression.prefill_chunk = shape.chunk;
  auto session = Session::Make(engine, {.context = shape.context,
                                        .key_type = shape.type,
                                        .value_type = shape.type,
                                        .compression = compression});
  EXPECT_TRUE(session.has_value()) << spec << ": " << session.error().message;
  return std::move(session).value();
}

inline std::vector<float> Logits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

// Text positions of a head's entries, oldest first.
inline std::vector<cache::Position> Kept(const Session& session, int layer, int head) {
  std::vector<cache::Position> kept;
  for (const cache::Slot slot : session.cache().order(layer, head)) {
    kept.push_back(session.cache().positions(layer, head)[static_cast<size_t>(slot)]);
  }
  return kept;
}

inline std::vector<std::vector<cache::Position>> KeptEverywhere(const Session& session) {
  std::vector<std::vector<cache::Position>> kept;
  const cache::CacheShape& shape = session.cache().config().shape;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) kept.push_back(Kept(session, layer, head));
  }
  return kept;
}

// Heads of a layer that have entries of their own.
inline int NHeads(const Session& session) { return session.cache().config().shape.n_kv_heads; }

inline int64_t TotalSlots(const Session& session) {
  int64_t n = 0;
  for (const auto& head : KeptEverywhere(session)) n += static_cast<int64_t>(head.size());
  return n;
}

inline std::string MethodName(const std::string& spec) { return spec.substr(0, spec.find(':')); }

inline compression::Traits MethodTraits(const std::string& spec) {
  return (*compression::MakeMethod(spec))->traits();
}

inline std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace winnow::conformance

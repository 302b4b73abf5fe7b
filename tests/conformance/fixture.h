#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/engine.h"
#include "runtime/session.h"
#include "runtime/testing/tiny_engine.h"

// Sessions of tiny random models, and every registered method to run them with.
namespace winnow::conformance {

using runtime::CompressionOptions;
using runtime::Engine;
using runtime::Session;
using runtime::TokenId;

using runtime::testing::kVocabulary;

// A tiny model; `n_kv_heads` of 4 query heads.
inline std::unique_ptr<Engine> OpenTiny(int n_kv_heads, int n_threads = 2, int dim = 16,
                                        const std::string& target = {},
                                        gguf::TensorType type = gguf::TensorType::kF32) {
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.n_kv_heads = n_kv_heads;
  spec.key_dim = dim;
  spec.value_dim = dim;
  spec.context = 4096;
  spec.type = type;
  return runtime::testing::TinyEngine(spec, {.n_threads = n_threads, .target = target});
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

// `spec` empty: the full cache.
inline std::unique_ptr<Session> Open(Engine& engine, const std::string& spec,
                                     const SessionShape& shape = {}) {
  CompressionOptions compression;
  if (!spec.empty()) {
    auto method = compression::MakeMethod(spec);
    EXPECT_TRUE(method.has_value()) << method.error().message;
    compression.method = *method;
    if (compression.method->traits().needs_budget) compression.size = shape.size;
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

inline int64_t TotalSlots(const Session& session) {
  int64_t n = 0;
  for (const auto& head : KeptEverywhere(session)) n += static_cast<int64_t>(head.size());
  return n;
}

inline std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const compression::MethodEntry& entry : compression::Methods()) {
    if (entry.name != "custom") names.emplace_back(entry.name);
  }
  names.emplace_back("custom:score=heavy,select=topk,sinks=2,recent=8,when=step");
  return names;
}

// The same, and those whose parameters change what they do: positions, rules for prompts, merging.
inline std::vector<std::string> MethodsAndVariants() {
  std::vector<std::string> specs = MethodNames();
  for (const char* variant :
       {"streaming:positions=original",
        "h2o:sinks=4,positions=reassigned",
        "tova:positions=reassigned",
        "roco:prefill_ratio=0.3,prefill_sinks=0",
        "cam:positions=original",
        "treekv:prefill=step",
        "treekv:positions=original",
        "d2o:layer_policy=uniform",
        "d2o:total=true",
        "d2o:gate_scale=length",
        "d2o:layer_policy=softmax",
        "d2o:similarity=both",
        "refreekv:per_head=true",
        "ems:positions=original",
        "ems:positions=baked",
        "ems:gamma=1",
        "hbw:representative=avg",
        "adakv:form=blend",
        "caote:base=last",
        "caote:form=errors",
        "criticalkv:score=heavy,budget=competing(0.2),sinks=2",
        "defensivekv:layer=true",
        "kvzip:plus=true",
        "kvzip:share=head",
        "winnow:queries=window",
        "winnow:rest=0,refit=false",
        "winnow:allocation=top-k,rest=0,refit=false",
        "winnow:allocation=uniform,chunk=64",
        "custom:score=running_mean,budget=competing,sinks=2,positions=reassigned,when=step"}) {
    specs.emplace_back(variant);
  }
  return specs;
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

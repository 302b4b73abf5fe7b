#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/log.h"
#include "compression/registry.h"
#include "model/testing/tiny_model.h"
#include "runtime/engine.h"
#include "runtime/store/session_file.h"
#include "temporary_folder.h"

// Session files of every method, and their sections.
namespace winnow::fuzz {

using runtime::Engine;
using runtime::Session;
using runtime::SessionOptions;
using runtime::TokenId;

inline constexpr int kVocabulary = 40;
inline constexpr size_t kFileHead = 24;     // magic and version
inline constexpr size_t kSectionHead = 24;  // tag, zero, length, hash

inline std::vector<TokenId> Tokens(int n) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 7 + 3) % kVocabulary);
  return tokens;
}

struct Seed {
  SessionOptions options;
  std::string bytes;
  std::vector<size_t> sections;  // offsets of their heads
};

inline uint64_t LengthAt(const std::string& bytes, size_t section) {
  uint64_t n = 0;
  std::memcpy(&n, bytes.data() + section + 8, sizeof(n));
  return n;
}

class Seeds {
 public:
  Seeds() {
    model::testing::TinySpec spec;
    spec.n_layers = 2;
    spec.n_heads = 2;
    spec.embedding = 32;
    spec.feed_forward = 32;
    spec.vocabulary = kVocabulary;
    auto builder = model::testing::TinyBuilder(spec);
    model::testing::AddTinyTokenizer(builder, kVocabulary);
    runtime::EngineOptions options;
    options.file = gguf::File::Parse(builder.Bytes()).value();
    options.n_threads = 1;
    NullLog log;
    engine_ = Engine::Open(options, log).value();
    for (const auto& entry : compression::Methods()) {
      Add(entry.name == "custom" ? "custom:score=heavy,select=topk,sinks=2,recent=8,when=step"
                                 : std::string(entry.name));
    }
    Add("");
  }

  Engine& engine() { return *engine_; }
  size_t size() const { return seeds_.size(); }
  const Seed& at(size_t i) const { return seeds_[i % seeds_.size()]; }

 private:
  void Add(const std::string& method) {
    Seed seed;
    seed.options.context = 120;
    if (!method.empty()) {
      seed.options.compression.method = compression::MakeMethod(method).value();
      const auto& traits = seed.options.compression.method->traits();
      if (traits.budget.needed) {
        seed.options.compression.size = std::max<int64_t>(20, traits.budget.min);
      }
    }
    const auto session = Session::Make(*engine_, seed.options).value();
    WINNOW_CHECK(session->Prefill(Tokens(48)).value());
    for (const TokenId token : Tokens(5)) WINNOW_CHECK(session->Decode(token).has_value());
    const std::string path = folder_.Path("seed");
    WINNOW_CHECK(runtime::SaveSession(*session, path).has_value());
    std::ifstream file(path, std::ios::binary);
    seed.bytes.assign(std::istreambuf_iterator<char>(file), {});
    for (size_t at = kFileHead; at < seed.bytes.size();
         at += kSectionHead + LengthAt(seed.bytes, at)) {
      seed.sections.push_back(at);
    }
    seeds_.push_back(std::move(seed));
  }

  TemporaryFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::vector<Seed> seeds_;
};

inline void SetHash(std::string& bytes, size_t section) {
  const uint64_t hash =
      XXH3_64bits(bytes.data() + section + kSectionHead, LengthAt(bytes, section));
  std::memcpy(bytes.data() + section + 16, &hash, sizeof(hash));
}

// Restores a session and continues it: generated tokens, another prompt, saving. Returns the
// message of what was refused; empty: everything worked.
inline std::string RestoreAndContinue(Engine& engine, const Seed& seed, const std::string& path) {
  auto session = runtime::RestoreSession(engine, seed.options, path);
  if (!session) {
    WINNOW_CHECK(!session.error().message.empty());
    return session.error().message;
  }
  WINNOW_CHECK((*session)->cache_bytes() >= 0);
  for (const TokenId token : Tokens(3)) {
    if (const auto done = (*session)->Decode(token); !done) return done.error().message;
  }
  if (const auto done = (*session)->Prefill(Tokens(9)); !done) return done.error().message;
  for (const TokenId token : Tokens(3)) {
    if (const auto done = (*session)->Decode(token); !done) return done.error().message;
  }
  WINNOW_CHECK(runtime::SaveSession(**session, path).has_value());
  return {};
}

}  // namespace winnow::fuzz

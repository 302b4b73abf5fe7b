// Session files: those of every method with bytes changed and the hashes made right again. What is
// accepted goes on: another prompt, generated tokens, and it can be saved.
//
// The first byte chooses a method; then every five bytes are a change: section, place (two bytes
// each), value.
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
#include "runtime/session_file.h"
#include "temporary_folder.h"

namespace {

using winnow::runtime::Engine;
using winnow::runtime::Session;
using winnow::runtime::SessionOptions;
using winnow::runtime::TokenId;

constexpr int kVocabulary = 40;
constexpr size_t kFileHead = 24;     // magic and version
constexpr size_t kSectionHead = 24;  // tag, zero, length, hash
constexpr size_t kMaxChanges = 16;

std::vector<TokenId> Tokens(int n) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 7 + 3) % kVocabulary);
  return tokens;
}

struct Seed {
  SessionOptions options;
  std::string bytes;
  std::vector<size_t> sections;  // offsets of their heads
};

uint64_t LengthAt(const std::string& bytes, size_t section) {
  uint64_t n = 0;
  std::memcpy(&n, bytes.data() + section + 8, sizeof(n));
  return n;
}

class Seeds {
 public:
  Seeds() {
    winnow::model::testing::TinySpec spec;
    spec.n_layers = 2;
    spec.n_heads = 2;
    spec.embedding = 32;
    spec.feed_forward = 32;
    spec.vocabulary = kVocabulary;
    auto builder = winnow::model::testing::TinyBuilder(spec);
    winnow::model::testing::AddTinyTokenizer(builder, kVocabulary);
    winnow::runtime::EngineOptions options;
    options.file = winnow::gguf::File::Parse(builder.Bytes()).value();
    options.n_threads = 1;
    winnow::NullLog log;
    engine_ = Engine::Open(options, log).value();
    for (const auto& entry : winnow::compression::Methods()) {
      Add(entry.name == "custom" ? "custom:score=heavy,select=topk,sinks=2,recent=8,when=step"
                                 : std::string(entry.name));
    }
    Add("");
  }

  Engine& engine() { return *engine_; }
  const Seed& at(size_t i) const { return seeds_[i % seeds_.size()]; }

 private:
  void Add(const std::string& method) {
    Seed seed;
    seed.options.context = 120;
    if (!method.empty()) {
      seed.options.compression.method = winnow::compression::MakeMethod(method).value();
      const auto& traits = seed.options.compression.method->traits();
      if (traits.needs_budget) {
        seed.options.compression.size = std::max<int64_t>(20, traits.min_budget);
      }
    }
    const auto session = Session::Make(*engine_, seed.options).value();
    WINNOW_CHECK(session->Prefill(Tokens(48)).value());
    for (const TokenId token : Tokens(5)) WINNOW_CHECK(session->Decode(token).has_value());
    const std::string path = folder_.Path("seed");
    WINNOW_CHECK(winnow::runtime::SaveSession(*session, path).has_value());
    std::ifstream file(path, std::ios::binary);
    seed.bytes.assign(std::istreambuf_iterator<char>(file), {});
    for (size_t at = kFileHead; at < seed.bytes.size();
         at += kSectionHead + LengthAt(seed.bytes, at)) {
      seed.sections.push_back(at);
    }
    seeds_.push_back(std::move(seed));
  }

  winnow::fuzz::TemporaryFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::vector<Seed> seeds_;
};

void SetHash(std::string& bytes, size_t section) {
  const uint64_t hash =
      XXH3_64bits(bytes.data() + section + kSectionHead, LengthAt(bytes, section));
  std::memcpy(bytes.data() + section + 16, &hash, sizeof(hash));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Seeds seeds;
  static const winnow::fuzz::TemporaryFolder folder;
  if (size == 0) return 0;
  const Seed& seed = seeds.at(data[0]);
  std::string bytes = seed.bytes;
  for (size_t i = 0; i < kMaxChanges && 5 * i + 5 < size; ++i) {
    const uint8_t* change = data + 1 + 5 * i;
    const size_t section = seed.sections[(change[0] | change[1] << 8) % seed.sections.size()];
    const size_t length = LengthAt(bytes, section);
    if (length == 0) continue;
    bytes[section + kSectionHead + (change[2] | change[3] << 8) % length] =
        static_cast<char>(change[4]);
    SetHash(bytes, section);
  }
  const std::string path = folder.Write("a.session", bytes);
  auto session = winnow::runtime::RestoreSession(seeds.engine(), seed.options, path);
  if (!session) {
    WINNOW_CHECK(!session.error().message.empty());
    return 0;
  }
  WINNOW_CHECK((*session)->cache_bytes() >= 0);
  for (const TokenId token : Tokens(3)) {
    if (!(*session)->Decode(token)) return 0;
  }
  if (!(*session)->Prefill(Tokens(9))) return 0;
  for (const TokenId token : Tokens(3)) {
    if (!(*session)->Decode(token)) return 0;
  }
  WINNOW_CHECK(winnow::runtime::SaveSession(**session, path).has_value());
  return 0;
}

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/session/repeat_entries.h"
#include "runtime/store/session_file.h"
#include "runtime/testing/tiny_engine.h"

// Sessions of a model whose layers differ in their heads.
namespace winnow::runtime {
namespace {

using testing::Logits;
using testing::Tokens;

model::testing::TinySpec DifferentLayers() {
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.heads_of_layer = {{.n_heads = 2, .n_kv_heads = 1, .key_dim = 32, .value_dim = 32},
                         {.n_heads = 4, .n_kv_heads = 4, .key_dim = 32, .value_dim = 64},
                         {.n_heads = 4, .n_kv_heads = 2, .key_dim = 64, .value_dim = 32}};
  return spec;
}

// Bytes of one token in f16.
constexpr int64_t kTokenBytes = 2 * (1 * (32 + 32) + 4 * (32 + 64) + 2 * (64 + 32));

class Layers : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Open(const SessionOptions& options = {}) const {
    return Session::Make(*engine_, options).value();
  }
  std::unique_ptr<Engine> engine_ = testing::TinyEngine(DifferentLayers());
};

TEST_F(Layers, TheMemoryPlanIsWhatTheCacheTakes) {
  const auto session = Open();
  const Reservation planned = session->Reserve(20, 5).value();
  EXPECT_EQ(planned.steady_bytes, 25 * kTokenBytes);
  EXPECT_EQ(planned.prefill_surplus_bytes, 0);
  ASSERT_TRUE(session->Prefill(Tokens(20)).value());
  EXPECT_EQ(session->cache_bytes(), 20 * kTokenBytes);
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(session->Decode(step).has_value());
  EXPECT_EQ(session->cache_bytes(), 25 * kTokenBytes);
  EXPECT_EQ(session->cache_bytes_full_f16(), 25 * kTokenBytes);
  for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(session->kept(layer), 25);
}

TEST_F(Layers, BytesLimitTheFullCache) {
  const auto session = Open({.compression = {.memory_bytes = 12 * kTokenBytes}});
  EXPECT_FALSE(session->Prefill(Tokens(13)).has_value());
  ASSERT_TRUE(session->Prefill(Tokens(10)).value());
  EXPECT_EQ(session->room(), 2);
  ASSERT_TRUE(session->Decode(1).has_value());
  ASSERT_TRUE(session->Decode(2).has_value());
  EXPECT_FALSE(session->Decode(3).has_value());
}

// All cache types, as the layers' rows differ in bytes. A fork, a saved session and a truncated one
// continue as the session does.
TEST_F(Layers, ForkedSavedAndCutBackSessionsGoOn) {
  using kernels::TensorType;
  const std::string path = ::testing::TempDir() + "winnow-layers.session";
  for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0, TensorType::kQ4_0}) {
    const SessionOptions options = {.key_type = type, .value_type = type};
    const auto session = Open(options);
    ASSERT_TRUE(session->Prefill(Tokens(20)).value());
    const auto fork = session->Fork().value();
    const auto saved = SaveSession(*session, path, "");
    ASSERT_TRUE(saved.has_value()) << saved.error().message;
    const auto restored = RestoreSession(*engine_, options, path);
    ASSERT_TRUE(restored.has_value()) << restored.error().message;
    std::filesystem::remove(path);
    EXPECT_EQ(restored.value()->cache_bytes(), session->cache_bytes());
    ASSERT_TRUE(session->Decode(3).has_value());
    const std::vector<float> once = Logits(*session);
    session->Truncate(20);
    ASSERT_TRUE(session->Decode(3).has_value());
    EXPECT_EQ(Logits(*session), once);
    for (Session* other : {fork.get(), restored.value().get()}) {
      ASSERT_TRUE(other->Decode(3).has_value());
      EXPECT_EQ(Logits(*other), once);
    }
  }
}

TEST_F(Layers, RepeatedTokensTakeTheSameRows) {
  const auto session = Open();
  ASSERT_TRUE(session->Prefill(Tokens(7)).value());
  ASSERT_TRUE(RepeatEntries(*session, 7).has_value());
  const cache::Cache& cache = session->cache();
  for (int layer = 0; layer < 3; ++layer) {
    for (int head = 0; head < cache.config().shape.layer(layer).n_kv_heads; ++head) {
      for (const kernels::HeadRows& rows : {cache.keys(layer, head), cache.values(layer, head)}) {
        const auto read = [&](const std::vector<int32_t>& slots) {
          std::vector<float> out(slots.size() * static_cast<size_t>(rows.dim));
          engine_->backend().ReadRows(rows, slots, out);
          return out;
        };
        EXPECT_EQ(read({0, 3, 6}), read({7, 10, 13}));
      }
    }
  }
}

TEST_F(Layers, MethodsNeedEqualOnes) {
  SessionOptions options = {.compression = {.size = 16}};
  options.compression.method = compression::MakeMethod("streaming").value();
  const auto refused = Session::Make(*engine_, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "streaming: layer 0 of the model has 2 query and 1 KV heads of 32 and 32 dimensions, "
            "layer 1 has 4 query and 4 KV heads of 32 and 64 dimensions; methods need layers with "
            "the same heads: run this model without one");
  // Other differences between layers do not matter to a method.
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.feed_forward_of_layer = {32, 96, 64};
  spec.rope_base_of_layer = {10000, 500, 10000};
  spec.attention_scale_of_layer = {0.25f, 0.3f, 0.25f};
  const auto engine = testing::TinyEngine(spec);
  const auto session = Session::Make(*engine, options).value();
  ASSERT_TRUE(session->Prefill(Tokens(40)).value());
  EXPECT_EQ(session->kept(1), 16);
}

}  // namespace
}  // namespace winnow::runtime

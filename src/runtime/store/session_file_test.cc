#include "runtime/store/session_file.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

using model::testing::MakeTinySpec;
using testing::Logits;
using testing::Tokens;

// What each method does before and after its session is saved is tested in tests/conformance.
class SessionFileTest : public ::testing::Test {
 protected:
  SessionFileTest()
      : engine_(testing::TinyEngine(MakeTinySpec("llama"))),
        path_(::testing::TempDir() + "winnow-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".session") {
    std::filesystem::remove(path_);
  }
  ~SessionFileTest() override { std::filesystem::remove(path_); }

  static SessionOptions Options(const std::string& method = {}, int64_t size = 0) {
    SessionOptions options;
    if (!method.empty()) options.compression.method = compression::MakeMethod(method).value();
    options.compression.size = size;
    return options;
  }
  void Save(const SessionOptions& options, std::string_view notes = {}) {
    const auto session = Session::Make(*engine_, options).value();
    ASSERT_TRUE(session->Prefill(Tokens(30)).value());
    const auto saved = SaveSession(*session, path_, notes);
    ASSERT_TRUE(saved.has_value()) << saved.error().message;
  }
  ErrorCode Code(const SessionOptions& options) {
    const auto restored = RestoreSession(*engine_, options, path_);
    return restored ? ErrorCode::kCancelled : restored.error().code;
  }
  std::string Problem(const SessionOptions& options) {
    const auto restored = RestoreSession(*engine_, options, path_);
    return restored ? "" : restored.error().message;
  }
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetContent(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::unique_ptr<Engine> engine_;
  std::string path_;
};

TEST_F(SessionFileTest, WithoutAMethodItGoesOnAndIsCutBack) {
  Save(Options(), "notes");
  const auto info = ReadSessionInfo(path_);
  ASSERT_TRUE(info.has_value()) << info.error().message;
  EXPECT_EQ(info->n_tokens, 30);
  EXPECT_EQ(info->notes, "notes");
  EXPECT_EQ(info->method, "");
  EXPECT_TRUE(info->model.starts_with("sha256:"));

  const auto once = Session::Make(*engine_, {}).value();
  ASSERT_TRUE(once->Prefill(Tokens(30)).value());
  SessionOptions larger = Options();
  larger.context = 64;
  const auto restored = RestoreSession(*engine_, larger, path_).value();
  EXPECT_EQ(restored->n_tokens(), 30);
  EXPECT_EQ(restored->capacity(), 64);
  EXPECT_EQ(Logits(*restored), Logits(*once));
  ASSERT_TRUE(once->Decode(3).has_value());
  ASSERT_TRUE(restored->Decode(3).has_value());
  EXPECT_EQ(Logits(*restored), Logits(*once));
  restored->Truncate(20);
  once->Truncate(20);
  ASSERT_TRUE(once->Decode(9).has_value());
  ASSERT_TRUE(restored->Decode(9).has_value());
  EXPECT_EQ(Logits(*restored), Logits(*once));
}

TEST_F(SessionFileTest, WhatDiffersIsNamed) {
  Save(Options("streaming", 20));
  EXPECT_EQ(Problem(Options("streaming", 20)), "");
  const std::string method = Problem(Options("tova", 20));
  EXPECT_NE(method.find("method streaming"), std::string::npos) << method;
  EXPECT_NE(method.find("method tova"), std::string::npos) << method;
  const std::string budget = Problem(Options("streaming", 21));
  EXPECT_NE(budget.find("20 slots"), std::string::npos) << budget;
  EXPECT_NE(budget.find("21 slots"), std::string::npos) << budget;
  SessionOptions types = Options("streaming", 20);
  types.key_type = kernels::TensorType::kF32;
  EXPECT_NE(Problem(types).find("F32 keys and F16 values"), std::string::npos) << Problem(types);
  SessionOptions small = Options("streaming", 20);
  small.context = 10;
  EXPECT_NE(Problem(small).find("20 entries in a cache of 10; `context` gives it a larger one"),
            std::string::npos)
      << Problem(small);
  // The file is intact and only the options are wrong.
  for (const SessionOptions& wrong :
       {Options("tova", 20), Options("streaming", 21), types, small}) {
    EXPECT_EQ(Code(wrong), ErrorCode::kInvalid) << Problem(wrong);
  }
  engine_ = testing::TinyEngine(MakeTinySpec("qwen2"));
  EXPECT_NE(Problem(Options("streaming", 20)).find("another model"), std::string::npos);
  EXPECT_EQ(Code(Options("streaming", 20)), ErrorCode::kUnknown);
}

TEST_F(SessionFileTest, ATextThatDoesNotFitIsNotDamaged) {
  Save(Options());
  SessionOptions small = Options();
  small.context = 29;
  EXPECT_EQ(Problem(small), path_ +
                                ": its 30 tokens do not fit the context of 29 tokens; `context` "
                                "gives it a larger one");
  EXPECT_EQ(Code(small), ErrorCode::kInvalid);
  small.context = 30;
  EXPECT_EQ(Problem(small), "");
}

// Keys that were stored after a Hadamard transform are useless without it.
TEST_F(SessionFileTest, TransformedKeysAreRecorded) {
  model::testing::TinySpec spec = MakeTinySpec("llama");
  spec.key_dim = spec.value_dim = 32;  // a block of q4_0
  engine_ = testing::TinyEngine(spec);
  SessionOptions options = Options();
  options.key_type = kernels::TensorType::kQ4_0;
  Save(options);
  EXPECT_TRUE(ReadSessionInfo(path_)->hadamard_keys);
  EXPECT_EQ(Problem(options), "");
  options.rotate_keys = false;
  EXPECT_NE(Problem(options).find("Q4_0 keys after a Hadamard transform"), std::string::npos)
      << Problem(options);
  Save(options);
  EXPECT_FALSE(ReadSessionInfo(path_)->hadamard_keys);
  EXPECT_EQ(Problem(options), "");
  options.key_type = kernels::TensorType::kQ8_0;  // 8 bits need no transform
  options.rotate_keys = true;
  Save(options);
  EXPECT_FALSE(ReadSessionInfo(path_)->hadamard_keys);
}

TEST_F(SessionFileTest, ABudgetInBytesHoldsForWhatWasSaved) {
  SessionOptions options = Options("streaming");
  options.compression.memory_bytes = 1 << 16;
  Save(options);
  EXPECT_EQ(Problem(options), "");
  options.compression.memory_bytes = 1 << 15;
  EXPECT_NE(Problem(options).find("bytes"), std::string::npos);
}

TEST_F(SessionFileTest, DamageAnywhereIsFound) {
  Save(Options("h2o", 16));
  const std::string bytes = Content();
  for (size_t n = 0; n < bytes.size(); n += 1 + n / 40) {
    SetContent(bytes.substr(0, n));
    EXPECT_NE(Problem(Options("h2o", 16)), "") << "cut at " << n;
    SetContent(bytes.substr(0, n) + static_cast<char>(bytes[n] ^ 4) + bytes.substr(n + 1));
    EXPECT_NE(Problem(Options("h2o", 16)), "") << "changed at " << n;
  }
  SetContent(bytes + "x");
  EXPECT_NE(Problem(Options("h2o", 16)), "");
  SetContent("GGUF");
  EXPECT_NE(Problem(Options()).find("is not a session file"), std::string::npos);
  std::filesystem::remove(path_);
  EXPECT_NE(Problem(Options()).find("cannot be read"), std::string::npos);
}

// Whoever only needs the text does not read the logits; whoever restores the session checks them.
TEST_F(SessionFileTest, TheTextIsReadWithoutTheLogits) {
  Save(Options());
  std::string bytes = Content();
  const size_t logits = bytes.find("LOGI") + 24;  // behind the section's head
  bytes[logits + 5] ^= 4;
  SetContent(bytes);
  SessionInput input = SessionInput::Open(path_).value();
  const auto text = ReadSessionText(input);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(text->tokens, Tokens(30));
  EXPECT_TRUE(text->has_logits);
  EXPECT_NE(Problem(Options()).find("section LOGI"), std::string::npos) << Problem(Options());

  SetContent(bytes.substr(0, logits + 5));
  SessionInput truncated = SessionInput::Open(path_).value();
  EXPECT_FALSE(ReadSessionText(truncated).has_value());

  const auto session = Session::Make(*engine_, Options()).value();
  ASSERT_TRUE(SaveSession(*session, path_).has_value());
  SessionInput empty = SessionInput::Open(path_).value();
  EXPECT_FALSE(ReadSessionText(empty)->has_logits);
}

// Regression: such a file was refused as damaged, because the compressor still counted the tokens
// that were truncated.
TEST_F(SessionFileTest, ASessionThatWasCutBackCanBeRestored) {
  const auto session = Session::Make(*engine_, Options()).value();
  ASSERT_TRUE(session->Prefill(Tokens(30)).value());
  session->Truncate(20);
  ASSERT_TRUE(session->Decode(3).has_value());
  ASSERT_TRUE(SaveSession(*session, path_).has_value());
  const auto restored = RestoreSession(*engine_, Options(), path_);
  ASSERT_TRUE(restored.has_value()) << restored.error().message;
  EXPECT_EQ((*restored)->n_tokens(), 21);
  EXPECT_EQ(Logits(**restored), Logits(*session));
}

TEST_F(SessionFileTest, SaysWhatTheSessionWasMadeWith) {
  for (const std::string decode : {"", "h2o"}) {
    SessionOptions options = Options("snapkv:window=8", 16);
    options.context = 64;
    options.value_type = kernels::TensorType::kF32;
    if (!decode.empty()) {
      options.compression.method = compression::WithDecode(options.compression.method,
                                                           compression::MakeMethod(decode).value())
                                       .value();
    }
    Save(options);
    const auto found = SessionOptionsFrom(ReadSessionInfo(path_).value());
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ(Problem(*found), "");
    EXPECT_EQ(found->context, 64);
    EXPECT_EQ(found->compression.method->traits().spec, options.compression.method->traits().spec);
  }
}

TEST_F(SessionFileTest, AnotherVersionIsNamed) {
  Save(Options());
  std::string bytes = Content();
  bytes[16] = 9;
  SetContent(bytes);
  EXPECT_NE(Problem(Options()).find("version 9, expected 3"), std::string::npos);
}

TEST_F(SessionFileTest, WhatCannotBeSavedLeavesTheOldFile) {
  Save(Options());
  const std::string before = Content();
  const auto session = Session::Make(*engine_, Options()).value();
  EXPECT_FALSE(SaveSession(*session, "/no/such/folder/a.session").has_value());
  EXPECT_EQ(Content(), before);
  EXPECT_TRUE(SaveSession(*session, path_).has_value());  // nothing was read yet
  EXPECT_EQ(RestoreSession(*engine_, Options(), path_).value()->n_tokens(), 0);
}

}  // namespace
}  // namespace winnow::runtime

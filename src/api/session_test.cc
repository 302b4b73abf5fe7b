// Information about models and sessions, sessions used token by token, and session files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "api/tiny_model_test.h"
#include "winnow/winnow.h"

namespace winnow {
namespace {

class ApiSession : public TinyModelTest {
 protected:
  ApiSession() : TinyModelTest(2) {}

  Session NewSession(const SessionOptions& options = {}) {
    return model_->NewSession(options).value();
  }
};

// A file's bytes in memory, aligned as Model::Open requires.
class Bytes {
 public:
  explicit Bytes(const std::string& path) : n_(std::filesystem::file_size(path)) {
    data_ = static_cast<std::byte*>(::operator new (n_, std::align_val_t{64}));
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char*>(data_), static_cast<std::streamsize>(n_));
  }
  ~Bytes() { ::operator delete (data_, std::align_val_t{64}); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  std::span<const std::byte> all() const { return {data_, n_}; }

 private:
  size_t n_;
  std::byte* data_ = nullptr;
};

TEST_F(ApiSession, AModelMayLieInMemory) {
  const Bytes bytes(path_);
  const Model model = Model::Open(bytes.all(), "tiny", {.threads = 2}).value();
  EXPECT_EQ(model.NewSession().value().Generate(prompt_, Greedy(6)).value().tokens,
            NewSession().Generate(prompt_, Greedy(6)).value().tokens);
  const auto damaged = Model::Open(bytes.all().first(1000), "tiny");
  EXPECT_EQ(damaged.error().code, ErrorCode::kFormat);
  EXPECT_TRUE(damaged.error().message.starts_with("tiny: ")) << damaged.error().message;
}

TEST_F(ApiSession, AModelIsDescribed) {
  const ModelInfo info = model_->info();
  EXPECT_EQ(info.architecture, model_->architecture());
  EXPECT_EQ(info.n_parameters, model_->n_parameters());
  EXPECT_EQ(info.file_bytes, static_cast<int64_t>(std::filesystem::file_size(path_)));
  EXPECT_EQ(info.trained_context, 128);
  EXPECT_FALSE(info.has_chat_template);
  EXPECT_EQ(info.threads, 2);
  EXPECT_FALSE(info.cpu_target.empty());
  EXPECT_GT(info.load_ms, 0);
  EXPECT_EQ(Model::Open(path_, {.cpu_target = "reference"}).value().info().cpu_target, "scalar");
  const auto refused = Model::Open(path_, {.cpu_target = "abacus"});
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_NE(refused.error().message.find("abacus"), std::string::npos);

  EXPECT_EQ(model_->MinTokens(70), 10);  // "piece69" has seven bytes
  const std::vector<MarkedText> text = {{"</s>", true}};
  EXPECT_EQ(model_->Tokenize(text), (std::vector<Token>{1, 2}));
  EXPECT_EQ(model_->Tokenize(text, /*add_bos=*/false), std::vector<Token>{2});
}

TEST_F(ApiSession, ASessionIsDescribed) {
  Session full = NewSession({.context = 10});
  SessionInfo info = full.info();
  EXPECT_EQ(info.method, "full");
  EXPECT_EQ(info.budget, 0);
  EXPECT_EQ(info.cache_tokens, 10);
  EXPECT_GT(info.bytes_per_token, 0);
  EXPECT_FALSE(info.rotated_keys || info.reassigns_positions || info.needs_question);
  EXPECT_FALSE(info.attended_share.has_value());
  ASSERT_TRUE(full.Append(prompt_).has_value());
  EXPECT_EQ(full.cache_bytes(), 4 * info.bytes_per_token);
  EXPECT_EQ(full.room(), 6);
  EXPECT_TRUE(full.CheckRoom(6).has_value());
  EXPECT_EQ(full.CheckRoom(7).error().code, ErrorCode::kInvalid);

  Session h2o = NewSession({.compression = {.method = "h2o:recent=4", .size = 16}});
  ASSERT_TRUE(h2o.Append(Document(80)).has_value());
  info = h2o.info();
  EXPECT_EQ(info.method, "h2o:recent=4");
  EXPECT_EQ(info.budget, 16);
  const CacheParts parts = h2o.cache_parts();
  EXPECT_EQ(parts.key_bytes + parts.value_bytes, 16 * info.bytes_per_token);
  EXPECT_EQ(parts.key_bytes, parts.value_bytes);
  EXPECT_GT(parts.method_bytes, 0);
  EXPECT_EQ(parts.key_bytes + parts.value_bytes + parts.method_bytes, h2o.cache_bytes());
  EXPECT_EQ(h2o.cache_bytes() + parts.list_bytes, h2o.cache_bytes_with_lists());
  EXPECT_FALSE(info.needs_question);
  EXPECT_EQ(h2o.kept(), std::vector<double>(static_cast<size_t>(model_->n_layers()), 16));
  EXPECT_TRUE(
      NewSession({.compression = {.method = "streaming", .size = 16}}).info().reassigns_positions);
  EXPECT_TRUE(
      NewSession({.compression = {.method = "snapkv:window=8", .size = 16}}).info().needs_question);
  Session twilight = NewSession({.compression = {.method = "twilight"}});
  EXPECT_FALSE(twilight.info().attended_share.has_value());
  ASSERT_TRUE(twilight.Generate(Document(80), Greedy(4)).has_value());
  const std::optional<double> share = twilight.info().attended_share;
  ASSERT_TRUE(share.has_value());
  EXPECT_GT(*share, 0);
  EXPECT_LE(*share, 1);
  EXPECT_EQ(twilight.Fork().value().info().attended_share, share);
  const std::string path = path_ + ".session";
  ASSERT_TRUE(twilight.Save(path).has_value());
  const SessionOptions options = {.compression = {.method = "twilight"}};
  EXPECT_FALSE(model_->RestoreSession(path, options)->info().attended_share.has_value());
  std::filesystem::remove(path);
}

TEST_F(ApiSession, OptionsOfComputingDoNotChangeTheText) {
  const std::vector<Token> expected = NewSession().Generate(Document(50), Greedy(8)).value().tokens;
  EXPECT_EQ(NewSession({.micro_batch = 7}).Generate(Document(50), Greedy(8)).value().tokens,
            expected);
  EXPECT_EQ(model_->NewSession({.micro_batch = 0}).error().code, ErrorCode::kInvalid);
}

// Decode evicts as Generate does.
TEST_F(ApiSession, DecodingIsWhatGenerateDoes) {
  const SessionOptions options = {.compression = {.method = "h2o:recent=4", .size = 16}};
  Session generating = NewSession(options);
  const Generation generated = generating.Generate(Document(80), Greedy(12)).value();
  Session decoding = NewSession(options);
  ASSERT_TRUE(decoding.Append(Document(80)).has_value());
  for (const Token token : generated.tokens) {
    std::vector<float> allowed(decoding.logits().begin(), decoding.logits().end());
    allowed[2] = -std::numeric_limits<float>::infinity();
    ASSERT_EQ(std::max_element(allowed.begin(), allowed.end()) - allowed.begin(), token);
    ASSERT_TRUE(decoding.Decode(token).has_value());
  }
  EXPECT_EQ(decoding.kept(), std::vector<double>(static_cast<size_t>(model_->n_layers()), 16));
  EXPECT_EQ(decoding.Decode(70).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(decoding.tokens().size(), 92u);
}

TEST_F(ApiSession, KeepsWhatItHasInCommon) {
  Session session = NewSession();
  ASSERT_TRUE(session.Append(prompt_).has_value());
  EXPECT_EQ(session.KeepCommonPrefix(std::vector<Token>{5, 9, 34}), 2);
  EXPECT_EQ(session.tokens().size(), 2u);
  EXPECT_EQ(session.KeepCommonPrefix(std::vector<Token>{6}), 0);
  EXPECT_TRUE(session.tokens().empty());
}

TEST_F(ApiSession, FilesHaveNotes) {
  const std::string path = path_ + ".session";
  Session session = NewSession();
  ASSERT_TRUE(session.Append(prompt_).has_value());
  ASSERT_TRUE(session.Save(path, "{\"of\": \"me\"}").has_value());
  EXPECT_EQ(ReadSessionNotes(path).value(), "{\"of\": \"me\"}");
  EXPECT_EQ(model_->RestoreSession(path).value().tokens().size(), 4u);
  ASSERT_TRUE(session.Save(path).has_value());
  EXPECT_EQ(ReadSessionNotes(path).value(), "");
  std::filesystem::remove(path);
  EXPECT_EQ(ReadSessionNotes(path).error().code, ErrorCode::kFile);
  EXPECT_EQ(ReadSessionNotes(path_).error().code, ErrorCode::kFormat);
}

TEST_F(ApiSession, AModelThatKnowsTheMethodHasRoomForItsReplay) {
  const std::string path = path_ + ".long";
  model::testing::TinySpec spec;
  spec.context = 512;
  auto builder = model::testing::TinyBuilder(spec);
  model::testing::AddTinyTokenizer(builder, spec.vocabulary);
  builder.Write(path);
  const Compression kvzip = {.method = "kvzip", .size = 12};
  const auto n_not_replayed = [&](const Compression& known) {
    const Model model =
        Model::Open(path, {.threads = 1, .context = 60, .compression = known}).value();
    Session session = model.NewSession({.compression = kvzip}).value();
    EXPECT_TRUE(session.Append(Document(50)).has_value());
    EXPECT_EQ(model.n_overflowed(), 0);
    return model.n_not_replayed();
  };
  EXPECT_EQ(n_not_replayed({}), 50);
  EXPECT_EQ(n_not_replayed(kvzip), 0);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace winnow

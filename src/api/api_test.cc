#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "api/tiny_model_test.h"
#include "winnow/winnow.h"

namespace winnow {
namespace {

class Api : public TinyModelTest {
 protected:
  Api() : TinyModelTest(2) {}

  Session NewSession(const SessionOptions& options = {}) {
    return std::move(model_->NewSession(options)).value();
  }
};

// kUnknown: no error.
template <class T>
ErrorCode CodeFrom(const Result<T>& result) {
  return result ? ErrorCode::kUnknown : result.error().code;
}

TEST_F(Api, DescribesTheModel) {
  EXPECT_EQ(model_->architecture(), "llama");
  EXPECT_EQ(model_->vocabulary_size(), 70);
  EXPECT_EQ(model_->context(), 128);
  EXPECT_GT(model_->n_parameters(), 10000);
}

TEST_F(Api, StreamsExactlyTheTextItReturns) {
  Session session = NewSession();
  GenerateOptions options = Greedy(12);
  std::string streamed;
  options.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  const auto generated = session.Generate(prompt_, options);
  ASSERT_TRUE(generated.has_value()) << generated.error().message;
  EXPECT_EQ(generated->text, streamed);
  EXPECT_EQ(generated->stop_reason, StopReason::kLimit);
  EXPECT_EQ(generated->tokens.size(), 12u);
  EXPECT_EQ(generated->prompt_tokens, 4);
}

TEST_F(Api, GreedyGenerationIsTheArgmaxOfAppendedLogits) {
  Session generating = NewSession();
  const auto generated = generating.Generate(prompt_, Greedy(5));
  ASSERT_TRUE(generated.has_value());
  Session appending = NewSession();
  EXPECT_TRUE(appending.logits().empty());
  ASSERT_TRUE(appending.Append(prompt_).has_value());
  for (const Token token : generated->tokens) {
    const auto logits = appending.logits();
    ASSERT_EQ(logits.size(), 70u);
    std::vector<float> allowed(logits.begin(), logits.end());
    allowed[2] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(std::max_element(allowed.begin(), allowed.end()) - allowed.begin(), token);
    ASSERT_TRUE(appending.Append(std::vector<Token>{token}).has_value());
  }
}

TEST_F(Api, AFalseFromTheCallbackStops) {
  Session session = NewSession();
  GenerateOptions options = Greedy(50);
  int n_calls = 0;
  options.on_text = [&](std::string_view) { return ++n_calls < 3; };
  const auto generated = session.Generate(prompt_, options);
  ASSERT_TRUE(generated.has_value());
  EXPECT_EQ(generated->stop_reason, StopReason::kCancelled);
  EXPECT_LT(generated->tokens.size(), 50u);
}

TEST_F(Api, ContinuingAfterTruncateGivesTheSame) {
  Session session = NewSession();
  const auto first = session.Generate(prompt_, Greedy(8));
  session.Truncate(2);
  EXPECT_EQ(session.tokens().size(), 2u);
  const auto second = session.Generate(prompt_, Greedy(8));
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->tokens, second->tokens);
}

TEST_F(Api, SessionsOutliveTheModelHandle) {
  Session session = NewSession();
  model_.reset();
  EXPECT_TRUE(session.Generate(prompt_, Greedy(3)).has_value());
}

TEST_F(Api, FullContextStops) {
  Session session = NewSession({.context = 10});
  EXPECT_EQ(session.capacity(), 10);
  const auto generated = session.Generate(prompt_, Greedy(-1));
  ASSERT_TRUE(generated.has_value());
  EXPECT_EQ(generated->stop_reason, StopReason::kContext);
  EXPECT_EQ(generated->tokens.size(), 7u);  // the last one is sampled, not stored in the cache
  EXPECT_EQ(session.tokens().size(), 10u);
}

TEST_F(Api, ErrorsNameWhatIsWrong) {
  EXPECT_NE(Model::Open("/nowhere/x.gguf").error().message.find("/nowhere/x.gguf"),
            std::string::npos);
  Session session = NewSession({.context = 10});
  EXPECT_EQ(session.Generate(std::vector<Token>(11, 5), Greedy(1)).error().message,
            "the prompt is 11 tokens, the context holds 10");
  EXPECT_NE(session.Generate(std::vector<Token>{70}, Greedy(1)).error().message.find("70"),
            std::string::npos);
  EXPECT_FALSE(session.Generate(std::vector<Token>(), Greedy(1)).has_value());
  GenerateOptions options = Greedy(1);
  options.sampling.top_p = 2;
  EXPECT_NE(session.Generate(prompt_, options).error().message.find("top_p"), std::string::npos);
  EXPECT_FALSE(session.Append(std::vector<Token>{-1}).has_value());
  EXPECT_FALSE(model_->NewSession({.context = 1000}).has_value());
  EXPECT_FALSE(model_->NewSession({.keys = CacheType::kQ8_0}).has_value());  // head_dim is 16
}

TEST_F(Api, ErrorsHaveCodes) {
  const auto damaged = path_ + ".damaged";
  std::filesystem::copy_file(path_, damaged);
  std::filesystem::resize_file(damaged, 1000);
  EXPECT_EQ(CodeFrom(Model::Open(path_ + ".none")), ErrorCode::kFile);
  EXPECT_EQ(CodeFrom(Model::Open(testing::TempDir())), ErrorCode::kFile);
  EXPECT_EQ(CodeFrom(Model::Open(damaged)), ErrorCode::kFormat);
  EXPECT_EQ(CodeFrom(Model::Open(path_, {.threads = -1})), ErrorCode::kInvalid);
  EXPECT_EQ(CodeFrom(Model::Open(path_, {.context = -1})), ErrorCode::kInvalid);
  EXPECT_EQ(CodeFrom(model_->RestoreSession(path_ + ".none")), ErrorCode::kFile);
  {  // the options are wrong, not the file
    const std::string saved = path_ + ".session";
    Session session = model_->NewSession().value();
    ASSERT_TRUE(session.Append(std::vector<Token>{5, 6}).has_value());
    ASSERT_TRUE(session.Save(saved).has_value());
    EXPECT_EQ(CodeFrom(model_->RestoreSession(saved, {.context = -1})), ErrorCode::kInvalid);
    EXPECT_EQ(CodeFrom(model_->RestoreSession(saved, {.context = 1})), ErrorCode::kInvalid);
    EXPECT_EQ(CodeFrom(model_->RestoreSession(saved, {.keys = CacheType::kF32})),
              ErrorCode::kInvalid);
  }
  {
    Session session = model_->NewSession().value();
    GenerateOptions options;
    options.max_tokens = -5;
    const std::vector<Token> prompt = {5, 6};
    EXPECT_EQ(CodeFrom(session.Generate(prompt, options)), ErrorCode::kInvalid);
    Scheduler scheduler = model_->NewScheduler().value();
    EXPECT_EQ(CodeFrom(scheduler.Submit(prompt, options)), ErrorCode::kInvalid);
  }
  EXPECT_EQ(CodeFrom(model_->RestoreSession(path_)), ErrorCode::kFormat);
  std::filesystem::remove(damaged);

  const auto of_session = [&](const SessionOptions& options) {
    return CodeFrom(model_->NewSession(options));
  };
  EXPECT_EQ(of_session({.context = -1}), ErrorCode::kInvalid);
  EXPECT_EQ(of_session({.compression = {.method = "none-such"}}), ErrorCode::kInvalid);
  EXPECT_EQ(of_session({.compression = {.method = "h2o"}}), ErrorCode::kInvalid);  // no budget

  Session session = NewSession();
  EXPECT_EQ(CodeFrom(session.Save("/none/such")), ErrorCode::kFile);
  EXPECT_EQ(CodeFrom(session.Append(Document(200))), ErrorCode::kInvalid);
  EXPECT_EQ(CodeFrom(session.Append(std::vector<Token>{70})), ErrorCode::kInvalid);
  EXPECT_EQ(CodeFrom(session.Generate(Document(200), Greedy(1))), ErrorCode::kInvalid);
  EXPECT_EQ(CodeFrom(session.Generate(std::vector<Token>{}, Greedy(1))), ErrorCode::kInvalid);
  GenerateOptions hot = Greedy(1);
  hot.sampling.top_p = 2;
  EXPECT_EQ(CodeFrom(session.Generate(prompt_, hot)), ErrorCode::kInvalid);
  Session small = NewSession({.compression = {.method = "streaming", .memory_bytes = 1}});
  EXPECT_EQ(CodeFrom(small.Append(prompt_)), ErrorCode::kTooLarge);

  EXPECT_EQ(CodeFrom(model_->ChatPrompt({}, {.tools = "{}"})), ErrorCode::kInvalid);
  EXPECT_EQ(CodeFrom(model_->ChatPrompt({}, {.chat_template = "{% if %}"})), ErrorCode::kInvalid);
}

TEST_F(Api, TokenizesAndBack) {
  EXPECT_EQ(model_->Detokenize(std::vector<Token>{5, 9}), "piece5piece9");
  const std::vector<Token> control =
      model_->Tokenize("</s>", {.add_special = false, .parse_special = true});
  EXPECT_EQ(control, std::vector<Token>{2});
  const MarkedText text = {"</s>", true};
  EXPECT_EQ(model_->TokenizeAfter(5, {&text, 1}), std::vector<Token>{2});
  EXPECT_TRUE(model_->EndsGeneration(2));
  EXPECT_FALSE(model_->EndsGeneration(5));
}

TEST_F(Api, WarnsOfADocumentWithoutAQuestion) {
  std::vector<std::string> warnings;
  const auto model =
      std::move(Model::Open(
                    path_, {.threads = 1,
                            .on_warning =
                                [&](std::string_view message) { warnings.emplace_back(message); }}))
          .value();
  const std::vector<Token> document = Document(80);
  const auto append = [&](const std::string& method) {
    Session session =
        std::move(model.NewSession({.compression = {.method = method, .size = 16}})).value();
    ASSERT_TRUE(session.Append(document).has_value());
    ASSERT_TRUE(session.Append(std::vector<Token>{5}).has_value());
  };
  append("h2o:recent=4");
  EXPECT_TRUE(warnings.empty());
  append("snapkv:window=8");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("before a question is known"), std::string::npos);
}

TEST_F(Api, CompressesAndForks) {
  const std::vector<Token> document = Document(80);
  Session session = NewSession({.compression = {.method = "h2o:recent=4", .size = 16}});
  ASSERT_TRUE(session.Append(document).has_value());
  EXPECT_EQ(session.kept(0).value(), 16);
  EXPECT_EQ(session.kept(model_->n_layers()).error().message,
            "kept: found layer 3, expected 0 to 2");
  EXPECT_FALSE(session.kept(-1).has_value());
  EXPECT_EQ(session.tokens().size(), 80u);
  EXPECT_GT(session.cache_bytes_with_lists(), session.cache_bytes());
  EXPECT_LT(session.cache_bytes_with_lists(), session.cache_bytes_full_f16() / 3);
  Session fork = std::move(session.Fork()).value();
  ASSERT_TRUE(fork.Append(std::vector<Token>{5, 6}).has_value());
  ASSERT_TRUE(session.Append(std::vector<Token>{5, 6}).has_value());
  EXPECT_TRUE(std::equal(fork.logits().begin(), fork.logits().end(), session.logits().begin()));
  session.Truncate(40);
  EXPECT_TRUE(session.tokens().empty());

  const std::string path = ::testing::TempDir() + "winnow-api.session";
  ASSERT_TRUE(fork.Save(path).has_value());
  const SessionOptions options = {.compression = {.method = "h2o:recent=4", .size = 16}};
  Session restored = std::move(model_->RestoreSession(path, options)).value();
  ASSERT_TRUE(restored.Append(std::vector<Token>{7}).has_value());
  ASSERT_TRUE(fork.Append(std::vector<Token>{7}).has_value());
  EXPECT_TRUE(std::equal(fork.logits().begin(), fork.logits().end(), restored.logits().begin()));
  EXPECT_NE(model_->RestoreSession(path).error().message.find("no method"), std::string::npos);
  std::filesystem::remove(path);

  const auto error = [&](const Compression& compression) {
    const auto refused = model_->NewSession({.compression = compression});
    return refused.has_value() ? std::string("none") : refused.error().message;
  };
  EXPECT_NE(error({.method = "h20", .size = 16}).find("h2o"), std::string::npos);
  EXPECT_NE(error({.method = "h2o"}).find("needs a budget"), std::string::npos);
  EXPECT_NE(error({.decode = "h2o"}).find("needs one for the prompt"), std::string::npos);
}

}  // namespace
}  // namespace winnow

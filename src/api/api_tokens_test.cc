// Tokens, prompts, conversations and cache contents in the public API.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "api/tiny_model_test.h"
#include "winnow/winnow.h"

namespace winnow {
namespace {

class ApiTokens : public TinyModelTest {
 protected:
  ApiTokens() : TinyModelTest(2) {}

  Session NewSession(const SessionOptions& options = {}) {
    return std::move(model_->NewSession(options)).value();
  }
};

struct Told {
  std::vector<Token> tokens;
  std::string text;
  std::vector<float> log_probabilities;
  std::vector<std::vector<TokenProbability>> top;

  bool operator()(const GeneratedToken& token) {
    tokens.push_back(token.token);
    text += token.text;
    log_probabilities.push_back(token.log_probability);
    top.emplace_back(token.top.begin(), token.top.end());
    return true;
  }
};

TEST_F(ApiTokens, ComeWithTheirProbabilities) {
  Session session = NewSession();
  Told told;
  GenerateOptions options = Greedy(6);
  options.top_probabilities = 3;
  options.on_token = std::ref(told);
  const Generation generated = session.Generate(prompt_, options).value();
  EXPECT_EQ(told.tokens, generated.tokens);
  EXPECT_EQ(told.text, generated.text);
  EXPECT_EQ(told.log_probabilities, generated.log_probabilities);
  ASSERT_EQ(told.tokens.size(), 6u);

  Session again = NewSession();
  ASSERT_TRUE(again.Append(prompt_).has_value());
  for (size_t i = 0; i < told.tokens.size(); ++i) {
    const std::span<const float> logits = again.logits();
    EXPECT_NEAR(told.log_probabilities[i], LogProbability(logits, told.tokens[i]), 1e-5);
    ASSERT_EQ(told.top[i].size(), 3u);
    const auto best = std::ranges::max_element(logits) - logits.begin();
    EXPECT_EQ(told.top[i][0].token, best);  // logit_bias does not change the probabilities
    for (const auto& [token, log_probability] : told.top[i]) {
      EXPECT_NEAR(log_probability, LogProbability(logits, token), 1e-5);
      EXPECT_LE(log_probability, told.top[i][0].log_probability);
    }
    ASSERT_TRUE(again.Append(std::vector<Token>{told.tokens[i]}).has_value());
  }
}

TEST_F(ApiTokens, AreToldAlikeByASessionAndAScheduler) {
  GenerateOptions options = Greedy(8);
  options.top_probabilities = 2;
  Told alone, among_others;
  std::vector<double> done;
  options.on_token = std::ref(alone);
  options.on_prefill = [&](double share) { done.push_back(share); };
  Session session = NewSession();
  ASSERT_TRUE(session.Generate(Document(60), options).has_value());
  ASSERT_FALSE(done.empty());
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), 1);
  Scheduler scheduler = model_->NewScheduler().value();
  done.clear();
  options.on_token = std::ref(among_others);
  const Generation generated = scheduler.Submit(Document(60), options).value().Wait().value();
  EXPECT_EQ(among_others.tokens, alone.tokens);
  EXPECT_EQ(among_others.text, alone.text);
  EXPECT_EQ(generated.log_probabilities.size(), 8u);
  for (size_t i = 0; i < alone.tokens.size(); ++i) {
    EXPECT_NEAR(among_others.log_probabilities[i], alone.log_probabilities[i], 1e-4);
    EXPECT_EQ(among_others.top[i].size(), 2u);
  }
  EXPECT_FALSE(done.empty());
}

TEST_F(ApiTokens, AFalseStops) {
  GenerateOptions options = Greedy(50);
  int n_told = 0;
  options.on_token = [&](const GeneratedToken&) { return ++n_told < 4; };
  Session session = NewSession();
  const Generation generated = session.Generate(prompt_, options).value();
  EXPECT_EQ(generated.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(generated.tokens.size(), 4u);
  EXPECT_TRUE(generated.log_probabilities.empty());
  // Also at the last token that max_tokens allows.
  GenerateOptions last = options;
  last.max_tokens = 4;
  n_told = 0;
  EXPECT_EQ(session.Generate(prompt_, last).value().stop_reason, StopReason::kCancelled);
  n_told = 0;
  Scheduler scheduler = model_->NewScheduler().value();
  const Generation other = scheduler.Submit(prompt_, options).value().Wait().value();
  EXPECT_EQ(other.stop_reason, StopReason::kCancelled);
  EXPECT_LT(other.tokens.size(), 10u);
  n_told = 0;
  EXPECT_EQ(scheduler.Submit(prompt_, last).value().Wait().value().stop_reason,
            StopReason::kCancelled);
}

// Not even for text that was held back as a possible stop string.
TEST_F(ApiTokens, NoFunctionIsCalledAgain) {
  Session session = NewSession();
  const std::string text = session.Generate(prompt_, Greedy(6)).value().text;
  const size_t last = text.rfind("piece");
  ASSERT_NE(last, std::string::npos);
  GenerateOptions options = Greedy(50);
  options.stop = {text.substr(last) + " and what does not come"};
  for (const bool scheduled : {false, true}) {
    int n_tokens = 0, n_after = 0;
    bool stopped = false;
    options.on_token = [&](const GeneratedToken&) {
      n_after += stopped ? 1 : 0;
      stopped = ++n_tokens == 6;
      return !stopped;
    };
    options.on_text = [&](std::string_view) {
      n_after += stopped ? 1 : 0;
      return true;
    };
    if (scheduled) {
      Scheduler scheduler = model_->NewScheduler().value();
      EXPECT_TRUE(scheduler.Submit(prompt_, options).value().Wait().has_value());
    } else {
      EXPECT_TRUE(NewSession().Generate(prompt_, options).has_value());
    }
    EXPECT_EQ(n_after, 0) << scheduled;
  }
}

TEST_F(ApiTokens, HaveAsManyProbabilitiesAsThereAreTokens) {
  for (const int n : {-2, 71}) {
    GenerateOptions options = Greedy(2);
    options.top_probabilities = n;
    Session session = NewSession();
    const auto refused = session.Generate(prompt_, options);
    EXPECT_EQ(refused.error().message,
              "top_probabilities is " + std::to_string(n) + ", expected -1 to 70");
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_FALSE(model_->NewScheduler().value().Submit(prompt_, options).has_value());
  }
}

TEST_F(ApiTokens, AppendingCanBeCancelled) {
  Session session = NewSession();
  AppendOptions options = {.cancel = CancellationToken::Make()};
  ASSERT_TRUE(session.Append(prompt_, options).has_value());
  options.cancel.Cancel();
  EXPECT_EQ(session.Append(Document(50), options).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(session.tokens().size(), 4u);
  EXPECT_TRUE(session.logits().empty());
  // Nothing is evicted yet, but the method could have evicted.
  const SessionOptions with_method = {.compression = {.method = "h2o", .size = 100}};
  Session appended = NewSession(with_method), generated = NewSession(with_method);
  ASSERT_TRUE(appended.Append(prompt_).has_value() && generated.Append(prompt_).has_value());
  EXPECT_EQ(appended.Append(Document(50), options).error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(appended.tokens().empty());
  GenerateOptions cancelled = Greedy(1);
  cancelled.cancel = options.cancel;
  std::vector<Token> longer = prompt_;
  longer.insert(longer.end(), {7, 8});
  EXPECT_EQ(generated.Generate(longer, cancelled).value().stop_reason, StopReason::kCancelled);
  EXPECT_TRUE(generated.tokens().empty());
}

TEST_F(ApiTokens, OfAStringAreControlTokensOnlyWhereAskedFor) {
  const std::string prompt = "</s>";
  const auto n_tokens = [&](bool parse_special) {
    GenerateOptions options = Greedy(1);
    options.parse_special = parse_special;
    Session session = NewSession();
    const Generation alone = session.Generate(prompt, options).value();
    Scheduler scheduler = model_->NewScheduler().value();
    EXPECT_EQ(scheduler.Submit(prompt, options).value().Wait().value().prompt_tokens,
              alone.prompt_tokens);
    return alone.prompt_tokens;
  };
  const auto written =
      std::ssize(model_->Tokenize(prompt, {.add_special = true, .parse_special = false}));
  EXPECT_EQ(n_tokens(false), written);
  EXPECT_LT(n_tokens(true), written);
}

TEST_F(ApiTokens, OfAConversationFollowTheTemplate) {
  const std::vector<ChatMessage> messages = {{"system", "Be brief."},
                                             {"user", "Who </s> are you?"}};
  ChatOptions options = {.chat_template =
                             "{% for m in messages %}{{ m.role }}:{{ m.content }};"
                             "{% endfor %}{% if add_generation_prompt %}></s>{% endif %}"};
  std::vector<Token> expected = model_->Tokenize("system:Be brief.;user:Who </s> are you?;>",
                                                 {.add_special = true, .parse_special = false});
  expected.push_back(2);  // EOS written by the template; the one in the message stays text
  EXPECT_EQ(model_->ChatPrompt(messages, options).value(), expected);
  options.add_generation_prompt = false;
  EXPECT_LT(model_->ChatPrompt(messages, options).value().size(), expected.size());
  for (const char* built_in : {"chatml", ""}) {
    const auto prompt = model_->ChatPrompt(messages, {.chat_template = built_in});
    ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
    EXPECT_GT(prompt->size(), 20u);
    EXPECT_EQ(model_->ChatPrompt(messages, {.chat_template = built_in}).value(), *prompt);
  }
  options.chat_template = "{% for %}";
  EXPECT_FALSE(model_->ChatPrompt(messages, options).has_value());
  options.chat_template = "no-such-format";
  EXPECT_NE(model_->ChatPrompt(messages, options).error().message.find("no-such-format"),
            std::string::npos);
  ChatOptions tools;
  tools.tools = std::string(200000, '[');
  EXPECT_FALSE(model_->ChatPrompt(messages, tools).has_value());
  tools.tools = std::string(1000, '[') + std::string(1000, ']');
  EXPECT_NE(model_->ChatPrompt(messages, tools).error().message.find("64 levels"),
            std::string::npos);
  tools.tools = "{";
  EXPECT_NE(model_->ChatPrompt(messages, tools).error().message.find("JSON array"),
            std::string::npos);
}

TEST_F(ApiTokens, ThatStayAreKnownByHead) {
  const std::vector<Token> document = Document(80);
  Session session = NewSession({.compression = {.method = "h2o:recent=4", .size = 16}});
  ASSERT_TRUE(session.Append(document).has_value());
  for (int layer = 0; layer < model_->n_layers(); ++layer) {
    const int n_heads = model_->n_kv_heads(layer).value();
    for (int head = 0; head < n_heads; ++head) {
      const std::vector<int64_t> kept = session.kept_positions(layer, head).value();
      ASSERT_EQ(kept.size(), 16u);
      EXPECT_TRUE(std::ranges::is_sorted(kept));
      EXPECT_EQ(std::set<int64_t>(kept.begin(), kept.end()).size(), 16u);
      EXPECT_GE(kept.front(), 0);
      EXPECT_EQ(std::vector<int64_t>(kept.end() - 4, kept.end()),
                (std::vector<int64_t>{76, 77, 78, 79}));
    }
    EXPECT_EQ(session.kept_positions(layer, n_heads).error().message,
              "kept_positions: found KV head " + std::to_string(n_heads) + ", expected 0 to " +
                  std::to_string(n_heads - 1));
  }
  EXPECT_FALSE(session.kept_positions(-1, 0).has_value());
  EXPECT_FALSE(model_->n_kv_heads(model_->n_layers()).has_value());
  Session full = NewSession();
  ASSERT_TRUE(full.Append(prompt_).has_value());
  EXPECT_EQ(full.kept_positions(0, 0).value(), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(ApiMethods, AreListedAsTheyAreMade) {
  const std::vector<MethodInfo> methods = ListMethods();
  EXPECT_GT(methods.size(), 30u);
  const auto find = [&](const std::string& name) {
    return *std::ranges::find(methods, name, &MethodInfo::name);
  };
  const MethodInfo snapkv = find("snapkv");
  EXPECT_TRUE(snapkv.needs_budget);
  EXPECT_GT(snapkv.min_size, 0);
  const auto window = std::ranges::find(snapkv.parameters, "window", &MethodParameter::name);
  ASSERT_NE(window, snapkv.parameters.end());
  EXPECT_FALSE(window->default_value.empty() || window->description.empty());
  EXPECT_FALSE(find("refreekv").needs_budget);
  EXPECT_TRUE(snapkv.holds_budget);
  EXPECT_FALSE(find("d2o").holds_budget);
  EXPECT_TRUE(snapkv.needs_question);
  EXPECT_FALSE(find("h2o").needs_question);
  EXPECT_FALSE(snapkv.reassigns_positions);
  EXPECT_TRUE(find("streaming").reassigns_positions);
}

// tokens() grows during the call, so its buffer may move.
TEST_F(ApiTokens, OfASessionCanBeGivenToIt) {
  const std::string path = path_ + ".long";
  model::testing::TinySpec spec;
  spec.context = 4096;
  auto builder = model::testing::TinyBuilder(spec);
  model::testing::AddTinyTokenizer(builder, spec.vocabulary);
  builder.Write(path);
  const Model model = Model::Open(path, {.threads = 2}).value();
  std::filesystem::remove(path);
  for (const bool scores : {false, true}) {
    Session session = model.NewSession({.compression = {.prefill_chunk = 64}}).value();
    ASSERT_TRUE(session.Append(Document(1020)).has_value());
    ASSERT_TRUE(session.Append(Document(1000)).has_value());
    std::vector<Token> twice(session.tokens().begin(), session.tokens().end());
    twice.insert(twice.end(), session.tokens().begin(), session.tokens().end());
    std::vector<std::vector<Token>> others;  // likely to reuse the memory that tokens() occupied
    const auto on_progress = [&](double) { others.emplace_back(2044, Token{1}); };
    const bool read =
        scores ? session.Score(session.tokens(), {.on_progress = on_progress}).has_value()
               : session.Append(session.tokens(), {.on_progress = on_progress}).has_value();
    ASSERT_TRUE(read);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), twice));
  }
}

}  // namespace
}  // namespace winnow

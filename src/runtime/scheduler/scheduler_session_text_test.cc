// The text of a session, and how prompts continue it.
#include <span>
#include <string>
#include <vector>

#include "runtime/generate/text_stream.h"
#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime {
namespace {

using testing::SchedulerSessionsTest;

// A prompt that continues a session follows all the text that the client has seen.
TEST_F(SchedulerSessionsTest, TheTextEndsWithTheLastTokenOfTheAnswer) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("chat", Prompt(40, 1))), "");
  const auto answer = Exercise("chat", Prompt(5, 2), 7);
  const auto text = [&] { return std::get<SessionTokens>(ReadTokens("chat")); };
  const std::vector<TokenId> last = {answer->tokens().back()};
  EXPECT_EQ(text().tokens.size(), 51u);
  EXPECT_EQ(text().unread, last);
  scheduler_->Drain();
  Make(WithFolder());
  EXPECT_EQ(text().tokens.size(), 51u) << "from its file";
  EXPECT_EQ(text().unread, last);
  EXPECT_FALSE(text().ended);

  // Neither an end-of-generation token nor the hidden end of a stop string is part of the text.
  Request ends = MakeRequest(Prompt(3, 3), 5);
  ends.session = "chat";
  ends.ignore_eos = false;
  ends.sampler.logit_bias = {{2, 1e9F}};
  const auto ended = Submit(std::move(ends));
  RunAll();
  EXPECT_EQ(ended->finish(), Finish::kStop);
  EXPECT_TRUE(text().unread.empty());
  EXPECT_TRUE(text().ended);
  scheduler_->Drain();
  Make(WithFolder());
  EXPECT_TRUE(text().unread.empty());
  EXPECT_TRUE(text().ended) << "from its file";
  Request stops = MakeRequest(Prompt(3, 4), 50);
  stops.session = "chat";
  stops.stop = {"piece"};  // is in the text of every token
  const auto stopped = Submit(std::move(stops));
  RunAll();
  EXPECT_EQ(stopped->finish(), Finish::kStopString);
  EXPECT_TRUE(text().unread.empty());
  EXPECT_FALSE(text().ended);
}

// A stop string may begin many tokens before the one that completes it.
TEST_F(SchedulerSessionsTest, TheTextEndsBeforeAStopString) {
  for (const bool evicts : {false, true}) {
    Make(Options());
    const SessionOptions options = evicts ? Compressed("h2o", 20) : SessionOptions();
    ASSERT_EQ(Problem(Create("free", Prompt(40, 1), options)), "");
    ASSERT_EQ(Problem(Fork("free", "stops")), "");
    const std::vector<TokenId> free = Exercise("free", Prompt(5, 2), 9)->tokens();
    const auto& tokenizer = engine_->tokenizer();
    const auto text_of = [&](size_t n) { return tokenizer.Decode(std::span(free).first(n)); };

    Request request = MakeRequest(Prompt(5, 2), 50);
    request.session = "stops";
    const std::string shown = text_of(1);
    request.stop = {text_of(4).substr(shown.size())};
    ASSERT_EQ(text_of(4).find(request.stop[0]), shown.size());
    const auto stopped = Submit(std::move(request));
    RunAll();
    ASSERT_EQ(stopped->finish(), Finish::kStopString);
    EXPECT_EQ(stopped->choices[0].text, shown);
    const auto text = std::get<SessionTokens>(ReadTokens("stops"));
    if (evicts) {
      EXPECT_EQ(text.tokens.size(), 40u + 5 + 3) << "what was evicted cannot come back";
      continue;
    }
    EXPECT_EQ(text.tokens, Joined(Joined(Prompt(40, 1), Prompt(5, 2)),
                                  std::vector<TokenId>(free.begin(), free.begin() + 1)));
    EXPECT_TRUE(text.unread.empty());
    const auto next = Exercise("stops", Prompt(3, 3), 6);
    EXPECT_EQ(next->tokens(), Alone(Joined(Joined(text.tokens, text.unread), Prompt(3, 3)), 6));
  }
}

// The rest of a token in which a stop string begins becomes text of the session as new tokens.
TEST_F(SchedulerSessionsTest, AStopStringMayBeginWithinAToken) {
  Make(Options());
  const auto& tokenizer = engine_->tokenizer();
  const std::vector<TokenId> tokens = Prompt(6, 1);
  const auto text_of = [&](size_t n) { return tokenizer.Decode(std::span(tokens).first(n)); };
  TextStream stream(tokenizer, {"other", text_of(4).substr(text_of(1).size() + 2)});
  std::string shown;
  for (const TokenId token : tokens) shown += stream.Push(token);
  shown += stream.Finish();
  ASSERT_TRUE(stream.stopped());
  EXPECT_EQ(shown, text_of(1) + "pi");
  EXPECT_EQ(stream.before_stop().n_tokens, 1);
  EXPECT_EQ(stream.before_stop().rest, "pi");
}

// The client has read the text, and writes its prompt after it, before it submits.
TEST_F(SchedulerSessionsTest, APromptAfterATextThatChangedMeanwhileIsRefused) {
  Make(Options());
  ASSERT_EQ(Problem(Create("chat", Prompt(40, 1))), "");
  const auto ask = [&](const std::vector<TokenId>& prompt) {
    Request request = MakeRequest(prompt, 4);
    request.session = "chat";
    request.begins_with_session = true;
    auto asked = Submit(std::move(request));
    RunAll();
    return asked;
  };
  ASSERT_FALSE(ask(Joined(Prompt(40, 1), Prompt(5, 2)))->error);
  const auto text = std::get<SessionTokens>(ReadTokens("chat")).tokens;
  for (const int64_t n : {6, 60}) {  // shorter than the text, and longer
    const auto late = ask(Joined(Prompt(40, 1), Prompt(n, 3)));
    ASSERT_TRUE(late->error) << n;
    EXPECT_EQ(late->error->kind, ErrorKind::kBusy);
    EXPECT_NE(late->error->message.find("send the request again"), std::string::npos);
    EXPECT_EQ(std::get<SessionTokens>(ReadTokens("chat")).tokens, text);
  }
  EXPECT_FALSE(ask(Joined(text, Prompt(6, 3)))->error) << "the name is free again";
}

TEST_F(SchedulerSessionsTest, APromptThatBeginsWithTheTextGoesOnFromIt) {
  Make(Options());
  ASSERT_EQ(Problem(Create("chat", Prompt(40, 1))), "");
  const auto first = Exercise("chat", Joined(Prompt(40, 1), Prompt(5, 2)), 7);
  EXPECT_EQ(first->n_reused, 40);
  EXPECT_EQ(first->reuse, PrefixReuse::kExact);
  EXPECT_EQ(first->tokens(), Alone(Joined(Prompt(40, 1), Prompt(5, 2)), 7));
  std::vector<TokenId> all = Joined(Joined(Prompt(40, 1), Prompt(5, 2)), first->tokens());
  all = Joined(all, Prompt(6, 3));
  const auto second = Exercise("chat", all, 7);
  EXPECT_EQ(second->n_reused, 51);
  EXPECT_EQ(second->tokens(), Alone(all, 7));
}

TEST_F(SchedulerSessionsTest, APromptThatBeginsOtherwiseGoesBehindTheText) {
  Make(Options());
  ASSERT_EQ(Problem(Create("chat", Prompt(10, 1))), "");
  const auto ticket = Exercise("chat", Prompt(20, 2), 7);
  EXPECT_EQ(ticket->n_reused, 10);
  EXPECT_EQ(ticket->tokens(), Alone(Joined(Prompt(10, 1), Prompt(20, 2)), 7));
}

// What the client says of the text's parts goes with the text, in memory and in files.
TEST_F(SchedulerSessionsTest, TheOutlineIsThatOfTheText) {
  const auto outline = [&](const std::string& id) {
    return std::get<SessionTokens>(ReadTokens(id)).outline;
  };
  const TextOutline begin = {.n_document = 30, .messages = {1, 2}, .answer_begins = 30};
  const TextOutline asked = {
      .n_document = 30, .messages = {1, 2, 3}, .answer_begins = 39, .answer_in_reasoning = true};
  for (const bool compressed : {false, true}) {
    Make(WithFolder());
    Request document = MakeRequest(Prompt(30, 1), 0);
    document.outline = begin;
    if (compressed) document.options = Compressed("h2o", 24);
    ASSERT_EQ(Problem(Wait([&](auto done) {
                scheduler_->CreateSession("chat", std::move(document), done);
              })),
              "");
    EXPECT_EQ(outline("chat"), begin);
    const auto ask = [&](int64_t n_tokens) {
      Request question = MakeRequest(Prompt(n_tokens, 2), 6);
      question.session = "chat";
      question.outline = asked;
      return Submit(std::move(question));
    };
    // A request that is cancelled changes nothing.
    ask(300);
    RunUntil([&] { return scheduler_->state().n_running == 1; });
    const auto in_use = ReadTokens("chat");
    ASSERT_TRUE(std::holds_alternative<RequestError>(in_use)) << "its text is about to change";
    EXPECT_EQ(std::get<RequestError>(in_use).kind, ErrorKind::kBusy);
    ticket_->Cancel();
    RunAll();
    EXPECT_EQ(outline("chat"), begin);
    ask(9);
    RunAll();
    EXPECT_EQ(outline("chat"), asked);
    ASSERT_EQ(Problem(Fork("chat", "copy")), "");
    ASSERT_EQ(Problem(Save("copy", "file")), "");
    // A text of which nothing is said: its messages are unknown.
    EXPECT_FALSE(Exercise("copy", Prompt(3, 4), 2)->error);
    EXPECT_EQ(outline("copy"), TextOutline{.n_document = 30});
    ASSERT_EQ(Problem(Restore("copy", "file")), "");
    EXPECT_EQ(outline("copy"), asked);
    scheduler_->Drain();
    Make(WithFolder());
    EXPECT_EQ(outline("chat"), asked) << "read from the file";
    EXPECT_FALSE(Exercise("chat", Prompt(3, 4), 2)->error);
    EXPECT_EQ(outline("chat"), TextOutline{.n_document = 30});
    for (const char* id : {"chat", "copy", "file"}) EXPECT_EQ(Problem(Delete(id)), "");
  }
}

}  // namespace
}  // namespace winnow::runtime

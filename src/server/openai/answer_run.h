#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chat/answer_parser.h"
#include "server/openai/answer.h"
#include "server/openai/backend.h"
#include "server/openai/exchange.h"
#include "server/openai/metrics.h"

namespace winnow::server {

// One running completion request: submits its prompts, collects their events and sends the answer,
// streamed or whole. Runs on its exchange's thread and lives as long as events come.
class CompletionRun : public std::enable_shared_from_this<CompletionRun> {
 public:
  struct Parts {
    ExchangePtr exchange = {};
    Backend* backend = nullptr;
    Metrics* metrics = nullptr;
    std::unique_ptr<const AnswerFormat> format = {};
    Answer answer = {};  // with its prompts; the choices are made here
    chat::AnswerOptions parser = {};
    bool parses = false;  // whether the text is parsed for calls and reasoning (chat)
    std::function<std::string()> draw_id = {};  // ids of tool calls
    std::string prompt_field = "prompt";        // the request's name for its prompts
    std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  };
  explicit CompletionRun(Parts parts);

  // `requests`: one for each of the answer's prompts. If one is refused, its error is sent.
  void Start(std::vector<runtime::Request> requests);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void OnEvent(size_t prompt, const runtime::Event& event);
  void OnStarted(size_t prompt);
  void OnToken(Choice& choice, const runtime::Event& event);
  void OnFinished(Choice& choice, const runtime::Event& event);
  // For answers that are not streamed. False: the buffers of all connections have no room.
  bool AddProbabilities(Choice& choice, const DrawnToken& drawn);
  void FailForRoom();
  void Fail(const ApiError& error);
  void Fail(size_t prompt, const runtime::RequestError& error);
  void CancelAll();
  void Finish();
  // Adds parsed text to the choice.
  chat::AnswerDelta Take(Choice& choice, chat::AnswerDelta delta);
  void Send(const report::Value& value);  // one event of the stream
  void SendFirst(Choice& choice);

  Parts parts_;
  std::vector<chat::AnswerParser> parsers_;     // by choice
  std::vector<bool> begun_;                     // by choice: First was sent
  std::vector<Time> last_token_;                // by choice
  std::vector<std::function<void()>> cancels_;  // by prompt
  std::set<runtime::TokenId> markers_;          // control tokens that the parser must see
  size_t n_open_ = 0;                           // choices that are not finished
  bool streams_ = false;                        // the stream has begun
  bool over_ = false;
  Time start_ = std::chrono::steady_clock::now();
};

}  // namespace winnow::server

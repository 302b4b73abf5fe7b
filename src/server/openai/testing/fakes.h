#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chat/prompt_writer.h"
#include "report/record.h"
#include "runtime/generate/constraint.h"
#include "server/openai/backend.h"
#include "server/openai/exchange.h"
#include "server/openai/service.h"
#include "tokenizer/tokenizer.h"

// The protocol without sockets and without a model.
namespace winnow::server::testing {

// Restricts nothing.
class FreeConstraint final : public runtime::TokenConstraint {
 public:
  void Mask(std::span<float>) override {}
  bool Accept(runtime::TokenId) override { return true; }
  bool finished() const override { return false; }
  std::unique_ptr<TokenConstraint> Copy() const override {
    return std::make_unique<FreeConstraint>();
  }
};

// An engine that answers as a test says.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(const tokenizer::Tokenizer& tokenizer);

  const ModelInfo& model() const override { return model_; }
  const tokenizer::Tokenizer& tokenizer() const override { return tokenizer_; }
  std::variant<Submitted, runtime::RequestError> Submit(runtime::Request request) override;
  runtime::SchedulerState state() const override { return state_now; }
  void CreateSession(const std::string& id, runtime::Request document,
                     const SessionDone& done) override;
  void ForkSession(const std::string& from, const std::string& to,
                   const SessionDone& done) override;
  void SaveSession(const std::string& id, const std::string& name,
                   const SessionDone& done) override;
  void RestoreSession(const std::string& id, const std::string& name,
                      const SessionDone& done) override;
  void DeleteSession(const std::string& id, const SessionDone& done) override;
  void ListSessions(const std::function<void(std::vector<runtime::SessionInfo>)>& done) override;
  void FindSession(const std::string& id, const SessionDone& done) override;
  void ReadTokens(const std::string& id, const TokensDone& done) override;
  void KeptPositions(const std::string& id, bool by_head, const KeptDone& done) override;

  // Each word of the answer is one token; every choice gets the same words.
  std::vector<std::string> words = {"he", "ll", "o"};
  runtime::Finish finish = runtime::Finish::kStop;
  std::string stopping_word;
  std::optional<runtime::RequestError> refusal;          // of Submit and CreateSession
  std::optional<runtime::RequestError> session_failure;  // of CreateSession, while reading
  std::optional<runtime::RequestError> failure;          // after the first token
  bool holds = false;  // answers stop after their first token; sessions are never made
  runtime::SchedulerState state_now;

  // Received calls.
  std::vector<runtime::Request> requests;
  int n_cancelled = 0;
  std::map<std::string, std::vector<tokenizer::TokenId>> sessions;
  std::map<std::string, std::vector<tokenizer::TokenId>> unread;
  bool reads_sessions = false;           // sessions are busy: their tokens cannot be read
  std::map<std::string, int64_t> files;  // bytes, of the sessions that are on disk
  std::map<std::string, runtime::TextOutline> outlines;
  std::set<std::string> ended;  // sessions whose last answer the model has ended

 private:
  runtime::SessionInfo Describe(const std::string& id) const;
  runtime::TokenId FirstToken(const std::string& word) const;

  const tokenizer::Tokenizer& tokenizer_;
  ModelInfo model_;
};

// Collects what a client would see. Posted work runs in Run, after the handler has returned;
// delayed work runs in Tick.
class FakeExchange final : public Exchange {
 public:
  void Send(HttpResponse response) override;
  void BeginStream(HttpResponse head) override;
  void Write(std::string bytes) override;
  void End() override;
  void OnClosed(std::function<void()> closed) override { closed_ = std::move(closed); }
  void Post(std::function<void()> work) override;
  void PostWork(std::function<void()> work) override;
  void AcquireMemorySlot(std::function<void(MemorySlot slot)> work) override;
  bool Hold(size_t bytes) override;
  void After(std::chrono::milliseconds delay, std::function<void()> work) override;

  void Run();   // posted work, and work posted by it
  void Wait();  // for another thread to post, then Run; aborts after a minute
  void Disconnect();
  void Tick();                                                          // runs delayed work
  std::chrono::milliseconds last_delay() const { return last_delay_; }  // of delayed work

  int status() const { return response_.status; }
  int n_posted_work() const { return n_posted_long_; }
  int n_memory_slots() const { return n_turns_; }  // taken so far
  // Whether the slot that was taken is still held.
  bool has_memory_slot() const { return !turn_.expired(); }
  size_t held() const { return held_; }
  size_t max_held = std::numeric_limits<size_t>::max();
  const HttpResponse& response() const { return response_; }
  bool ended() const { return ended_; }
  bool streamed() const { return streamed_; }
  report::Record json() const;                 // of the body
  std::vector<std::string> events() const;     // data of the stream
  std::vector<report::Record> chunks() const;  // those that are JSON
  const std::string& bytes() const { return bytes_; }

 private:
  HttpResponse response_ = {.status = 0};
  int n_posted_long_ = 0;
  int n_turns_ = 0;
  std::weak_ptr<void> turn_;
  size_t held_ = 0;
  std::string bytes_;
  bool streamed_ = false;
  bool ended_ = false;
  std::function<void()> closed_;
  std::mutex mutex_;  // guards posted_
  std::condition_variable has_posted_;
  std::deque<std::function<void()>> posted_, later_;
  std::chrono::milliseconds last_delay_{0};
};

// A service on a fake engine, with the small byte-pair vocabulary and ChatML or a Jinja template.
class Fixture {
 public:
  explicit Fixture(ServiceOptions options = {}, const std::string& chat_template = "chatml");

  std::shared_ptr<FakeExchange> Exercise(const HttpRequest& request);
  std::shared_ptr<FakeExchange> Post(const std::string& path, const std::string& body);
  std::shared_ptr<FakeExchange> Get(const std::string& path);

  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  FakeBackend backend;
  std::unique_ptr<chat::PromptWriter> prompts;
  Service service;
};

}  // namespace winnow::server::testing

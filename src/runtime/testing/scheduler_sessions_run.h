#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/testing/scheduler_run.h"

namespace winnow::runtime::testing {

// SchedulerTest with named sessions and a folder to save them in.
class SchedulerSessionsTest : public SchedulerTest {
 protected:
  SchedulerSessionsTest()
      : folder_(::testing::TempDir() + "winnow-" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name() + "-" +
                std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~SchedulerSessionsTest() override { std::filesystem::remove_all(folder_); }

  SchedulerOptions WithFolder() {
    SchedulerOptions options = Options();
    options.session_path = folder_;
    return options;
  }
  using Outcome = Scheduler::SessionOutcome;
  // The outcome of an operation that runs between rounds.
  template <class Operation>
  Outcome Wait(const Operation& operation) {
    std::optional<Outcome> outcome;
    operation([&](Outcome result) { outcome = std::move(result); });
    while (!outcome && scheduler_->Round()) {
    }
    EXPECT_TRUE(outcome.has_value());
    return *outcome;
  }
  Outcome Create(const std::string& id, std::vector<TokenId> tokens,
                 std::optional<SessionOptions> options = {}) {
    Request document = MakeRequest(std::move(tokens), 0);
    document.options = std::move(options);
    return Wait([&](auto done) { scheduler_->CreateSession(id, std::move(document), done); });
  }
  Outcome Fork(const std::string& from, const std::string& to) {
    return Wait([&](auto done) { scheduler_->ForkSession(from, to, done); });
  }
  Outcome Save(const std::string& id, const std::string& name) {
    return Wait([&](auto done) { scheduler_->SaveSession(id, name, done); });
  }
  Outcome Restore(const std::string& id, const std::string& name) {
    return Wait([&](auto done) { scheduler_->RestoreSession(id, name, done); });
  }
  Outcome Delete(const std::string& id) {
    return Wait([&](auto done) { scheduler_->DeleteSession(id, done); });
  }
  std::shared_ptr<Answer> Exercise(const std::string& id, std::vector<TokenId> tokens, int64_t n) {
    Request request = MakeRequest(std::move(tokens), n);
    request.session = id;
    auto answer = Submit(std::move(request));
    RunAll();
    return answer;
  }
  std::vector<SessionInfo> List() {
    std::vector<SessionInfo> list;
    scheduler_->ListSessions(
        [&](std::vector<SessionInfo> sessions) { list = std::move(sessions); });
    RunAll();
    return list;
  }
  std::variant<SessionTokens, RequestError> ReadTokens(const std::string& id) {
    std::optional<std::variant<SessionTokens, RequestError>> read;
    scheduler_->ReadTokens(id, [&](auto tokens) { read = std::move(tokens); });
    while (!read && scheduler_->Round()) {
    }
    return *std::move(read);
  }
  static std::string Problem(const Outcome& outcome) {
    const auto* error = std::get_if<RequestError>(&outcome);
    return error == nullptr ? "" : error->message;
  }
  static std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  // The same, for a document that is prefilled first and a question after it.
  std::vector<TokenId> AloneAfter(const std::vector<TokenId>& document,
                                  const std::vector<TokenId>& question, int64_t n,
                                  const SessionOptions& options) {
    const auto session = Session::Make(*engine_, options).value();
    EXPECT_TRUE(session->Prefill(document).value());
    SamplerConfig config = {.temperature = 0};
    BanEndOfGeneration(engine_->tokenizer(), config);
    Sampler sampler = Sampler::Make(config, testing::kVocabulary).value();
    GenerateOptions generate;
    generate.max_tokens = n;
    return Generate(*session, sampler, Joined(document, question), generate).value().tokens;
  }

  std::string folder_;
};

}  // namespace winnow::runtime::testing

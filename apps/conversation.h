#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/prompt_writer.h"
#include "console.h"
#include "options.h"
#include "runtime/generate.h"
#include "session_store.h"
#include "tokenizer/chat_template.h"

namespace winnow::apps {

struct ChatFlags {
  ModelFlags model;
  SamplerFlags sampler;
  SessionFlags session;
  std::optional<std::string> system;
  std::optional<std::string> system_file;
  std::optional<std::string> first_message;
  std::optional<std::string> document;
  chat::WriterOptions chat_template;
  std::optional<std::string> chat_template_file;
  std::vector<std::string> stop;
  int64_t n_predict = -1;
  bool single_turn = false;
  bool statistics = true;
  std::vector<std::string> notes;
};

// What every conversation begins with.
struct Texts {
  std::string system;
  std::optional<std::string> document;
};

// Messages and answers, or questions on a document that is read once.
class Conversation {
 public:
  Conversation(const ChatFlags& flags, Loaded& loaded, runtime::Sampler sampler,
               const chat::PromptWriter& writer, Texts texts, const SessionStore& store,
               ConsoleLog& log);

  // Goes on from what the store's file says, if there is one; otherwise reads the document, if
  // there is one: later answers start from what is kept of it. False: interrupted. Errors: those of
  // reading; another document, or another system prompt, than the session began with.
  Result<bool> Begin(const std::atomic<bool>& interrupted);

  // Forgets all messages.
  void Clear();
  // Answers a message on stdout. A message that does not fit is told of and forgotten.
  Result<runtime::StopReason> Answer(std::string message, const std::atomic<bool>& interrupted);
  bool can_regenerate() const { return !messages_.empty() && messages_.back().role == "assistant"; }
  Result<runtime::StopReason> Regenerate(const std::atomic<bool>& interrupted);

  // Writes the conversation to the store's file; what was read of a document was written when it
  // was read. Error: the disk.
  Result<void> Save();

 private:
  Result<bool> ReadDocument(const std::atomic<bool>& interrupted);
  Result<void> Restore(const report::Record& notes);
  Result<void> Write();
  // The prompt of the last message.
  Result<std::vector<runtime::TokenId>> Tokens();
  Result<runtime::StopReason> AnswerLast(const std::atomic<bool>& interrupted);
  void Report(const runtime::Generated& generated, const runtime::Session& session);

  const ChatFlags& flags_;
  runtime::Session& session_;
  runtime::Sampler sampler_;
  const chat::PromptWriter& writer_;
  Texts texts_;
  std::string document_hash_;  // empty: no document
  const SessionStore& store_;
  ConsoleLog& log_;
  bool warned_ = false;  // that the model's template failed
  std::vector<tokenizer::ChatMessage> messages_;
};

}  // namespace winnow::apps

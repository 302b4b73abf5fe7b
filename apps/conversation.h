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
  std::string history_file;
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
  // Answers a message on stdout. A message that does not fit is told of, counted and forgotten.
  Result<runtime::StopReason> Answer(std::string message, const std::atomic<bool>& interrupted);
  int64_t n_left_out() const { return n_left_out_; }
  bool can_regenerate() const { return !messages_.empty() && messages_.back().role == "assistant"; }
  Result<runtime::StopReason> Regenerate(const std::atomic<bool>& interrupted);

  // Of /set, /save, /load, /kv and /stats. Errors: values out of range; a document was read, whose
  // prompt cannot change any more.
  Result<void> SetSampler(const SamplerFlags& flags);
  Result<void> SetSystem(std::string system);
  const std::string& system() const { return texts_.system; }
  Result<void> ResumeFrom(std::vector<tokenizer::ChatMessage> messages);
  std::vector<tokenizer::ChatMessage> transcript() const;  // questions on a document, all of them
  std::string CacheText() const;
  const std::string& last_statistics() const { return last_statistics_; }  // empty: no answer yet

  // Writes the conversation to the store's file; what was read of a document was written when it
  // was read. Error: the disk.
  Result<void> Save();

 private:
  Result<bool> ReadDocument(const std::atomic<bool>& interrupted);
  Result<void> Restore(const report::Record& notes);
  Result<void> Write();
  void StartMessages();
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
  std::vector<tokenizer::ChatMessage> transcript_;  // before messages_, where there is a document
  std::string last_statistics_;
  int64_t n_left_out_ = 0;  // messages
};

}  // namespace winnow::apps

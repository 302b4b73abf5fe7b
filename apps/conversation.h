#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/prompt_writer.h"
#include "console.h"
#include "load.h"
#include "options.h"
#include "session_store.h"
#include "winnow/model.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

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
  bool escape = true;
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
  Conversation(const ChatFlags& flags, LoadedModel& loaded, Sampler sampler,
               ChatTemplate chat_template, Texts texts, const SessionStore& store, ConsoleLog& log);

  // Goes on from what the store's file says, if there is one; otherwise reads the document, if
  // there is one: later answers start from what is kept of it. False: interrupted. Errors: those of
  // reading; another document, or another system prompt, than the session began with.
  Result<bool> Begin();

  // Forgets all messages.
  void Clear();
  // Answers a message on stdout. A message that does not fit is told of, counted and forgotten, as
  // is one that was interrupted before the first token of its answer.
  Result<StopReason> Answer(std::string message);
  int64_t n_left_out() const { return n_left_out_; }
  bool can_regenerate() const { return !messages_.empty() && messages_.back().role == "assistant"; }
  // Another answer to the last message; the old one stays where there is none.
  Result<StopReason> Regenerate();

  // Of /set, /save, /load, /kv and /stats. Errors: values out of range; a document was read, whose
  // prompt cannot change any more.
  Result<void> SetSampler(const SamplerFlags& flags);
  Result<void> SetSystem(std::string system);
  const std::string& system() const { return texts_.system; }
  Result<void> ResumeFrom(std::vector<ChatMessage> messages);
  std::vector<ChatMessage> transcript() const;  // questions on a document, all of them
  std::string CacheText() const;
  const std::string& last_statistics() const { return last_statistics_; }  // empty: no answer yet

  // Writes the conversation to the store's file; what was read of a document was written when it
  // was read. Error: the disk.
  Result<void> Save();

 private:
  Result<bool> ReadDocument();
  Result<void> Restore(const report::Record& notes);
  Result<void> Write();
  void StartMessages();
  bool evicts() const { return session_.info().method != "full"; }
  // The prompt of the last message.
  Result<std::vector<Token>> Tokens();
  // Adds the answer to the last message, or nothing where it does not fit or was interrupted.
  Result<StopReason> AnswerLast();
  Result<StopReason> LeaveOut(const std::string& reason);
  void Report(const Generation& generated, const Session& session);

  const ChatFlags& flags_;
  const Model& model_;
  Session& session_;
  Sampler sampler_;
  ChatTemplate template_;
  Texts texts_;
  std::string document_hash_;  // empty: no document
  const SessionStore& store_;
  ConsoleLog& log_;
  bool warned_ = false;  // that the model's template failed
  std::vector<ChatMessage> messages_;
  std::vector<ChatMessage> transcript_;  // before messages_, where there is a document
  std::string last_statistics_;
  int64_t n_left_out_ = 0;  // messages
};

}  // namespace winnow::apps

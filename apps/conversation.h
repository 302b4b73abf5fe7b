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

// Texts at the beginning of every conversation.
struct Texts {
  std::string system;
  std::optional<std::string> document;
};

// A chat, or independent questions about a document that is read once.
class Conversation {
 public:
  Conversation(const ChatFlags& flags, LoadedModel& loaded, Sampler sampler,
               ChatTemplate chat_template, Texts texts, const SessionStore& store, ConsoleLog& log);

  // Restores the store's file if there is one. Otherwise reads the document, if there is one; later
  // answers start from its (compressed) cache. False: interrupted. Errors: those of reading; a
  // document or system prompt other than the one the session began with.
  Result<bool> Begin();

  // Removes all messages.
  void Clear();
  // Answers a message on stdout. A message that does not fit is reported, counted and removed; so
  // is one that was interrupted before the first token of its answer.
  Result<StopReason> Answer(std::string message);
  int64_t n_left_out() const { return n_left_out_; }
  bool can_regenerate() const { return !messages_.empty() && messages_.back().role == "assistant"; }
  // Generates another answer to the last message; keeps the old one if there is no new one.
  Result<StopReason> Regenerate();

  // For /set, /save, /load, /kv and /stats. Errors: values out of range; a change to the prompt of
  // a document that was already read.
  Result<void> SetSampler(const SamplerFlags& flags);
  Result<void> SetSystem(std::string system);
  const std::string& system() const { return texts_.system; }
  Result<void> ResumeFrom(std::vector<ChatMessage> messages);
  std::vector<ChatMessage> transcript() const;  // for a document: all questions and answers
  std::string CacheText() const;
  const std::string& last_statistics() const { return last_statistics_; }  // empty: no answer yet

  // Writes the conversation to the store's file. A document's session was written when the document
  // was read. Error: the file cannot be written.
  Result<void> Save();

 private:
  Result<bool> ReadDocument();
  Result<void> Restore(const report::Record& notes);
  Result<void> Write();
  void StartMessages();
  bool evicts() const { return session_.info().method != "full"; }
  // The prompt that ends with the last message.
  Result<std::vector<Token>> Tokens();
  // Generates and adds the answer to the last message; adds nothing if it does not fit or was
  // interrupted.
  Result<StopReason> AnswerLast();
  Result<StopReason> DropMessage(const std::string& reason);
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
  bool warned_ = false;  // about a failure of the model's template
  std::vector<ChatMessage> messages_;
  std::vector<ChatMessage> transcript_;  // with a document: the messages before messages_
  std::string last_statistics_;
  int64_t n_left_out_ = 0;  // messages
};

}  // namespace winnow::apps

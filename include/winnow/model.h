#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/result.h"
#include "winnow/scheduler.h"
#include "winnow/session.h"

namespace winnow {

struct ModelOptions {
  int threads = 0;      // 0: one for each core this process may use
  int64_t context = 0;  // longest text in tokens; 0: what the model was trained for
  // What a text gets has the same bits alone and beside any others of a Scheduler; generating one
  // or a few texts takes longer.
  bool deterministic = false;
  bool check_tensors = false;  // look for NaN and infinity in all weights: reads the whole file
  // What a person should know but nothing fails for, such as a context beyond the trained one, or a
  // method that compresses what is appended before it knows a question.
  std::function<void(std::string_view message)> on_warning = {};
};

struct TokenizeOptions {
  bool add_special = true;  // tokens the model wants around a text
  bool parse_special =
      false;  // control tokens written in the text become tokens: only for text you trust
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = true;  // the assistant's turn begins at the end
  // Empty: the model's own. Else a Jinja source, or the name of a built-in format ("chatml").
  std::string chat_template = {};
  std::string tools = {};  // JSON: OpenAI's array; empty: none
};

// A language model of a GGUF file, ready to compute. A handle: copies share the model, sessions
// keep it alive. A model and its sessions are used by one thread at a time.
class Model {
 public:
  // Errors: the file cannot be read, is damaged, or holds something winnow does not know; named in
  // the message.
  static Result<Model> Open(const std::string& path, const ModelOptions& options = {});

  std::string_view architecture() const;  // "llama"
  int64_t n_parameters() const;
  int n_layers() const;
  Result<int> n_kv_heads(int layer) const;  // Error: no such layer
  int64_t context() const;                  // tokens a session can hold at most
  int64_t vocabulary_size() const;          // tokens are 0 .. vocabulary_size() - 1

  // Any bytes are accepted, valid UTF-8 or not.
  std::vector<Token> Tokenize(std::string_view text, const TokenizeOptions& options = {}) const;
  // Requires of the two: tokens of the vocabulary.
  std::string Detokenize(std::span<const Token> tokens) const;
  bool EndsGeneration(Token token) const;
  // A conversation as the model expects it, for Session::Generate. What messages contain stays
  // text. Errors: what the template refuses, in its words; a template or tools that cannot be read.
  Result<std::vector<Token>> ChatPrompt(std::span<const ChatMessage> messages,
                                        const ChatOptions& options = {}) const;

  // A text in the making, with its own cache. Errors: context out of range, memory refused.
  Result<Session> NewSession(const SessionOptions& options = {}) const;
  // A session that goes on where a saved one was, of this model and with the options it was made
  // with (another context may be given). Errors: not such a file, damaged, of another model, other
  // options (names both).
  Result<Session> RestoreSession(const std::string& path, const SessionOptions& options = {}) const;
  // For many prompts at once. Errors: an option out of range, a memory limit below the model's own
  // bytes (says both numbers).
  Result<Scheduler> NewScheduler(const SchedulerOptions& options = {}) const;

 private:
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend class Session;
  std::shared_ptr<Impl> impl_;
};

}  // namespace winnow

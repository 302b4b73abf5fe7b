#pragma once

#include <cstddef>
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
  // Instruction set, such as "AVX2"; empty: the best there is; "reference": plain loops.
  std::string cpu_target = {};
  // What sessions will use: a method that reads prompts a second time gets positions beyond
  // `context` for it.
  Compression compression = {};
  // What 'winnow calibrate' wrote for this model; empty: the file beside the model's is read where
  // a method wants it.
  std::string error_profiles = {};
  // What a person should know but nothing fails for, such as a context beyond the trained one, or a
  // method that compresses what is appended before it knows a question. Called in the thread of the
  // call that finds it. Of sessions, not of a Scheduler: n_not_replayed() counts for both.
  std::function<void(std::string_view message)> on_warning = {};
};

struct ModelInfo {
  std::string name = {};          // as the file has it; may be empty
  std::string architecture = {};  // "llama"
  std::string file_type = {};  // the file's label of its quantisation, such as "Q4_K_M", or empty
  int64_t n_parameters = 0;
  int64_t file_bytes = 0;
  int64_t trained_context = 0;  // tokens
  std::string cpu_target = {};  // the instruction set in use
  int threads = 0;
  double load_ms = 0;  // what opening took
};

// A stretch of a text, and whether control tokens written in it are meant. Tokens may span two
// stretches, control tokens only those where they are meant.
struct MarkedText {
  std::string text;
  bool parse_special = false;
  bool operator==(const MarkedText&) const = default;
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

struct ChatTemplateOptions {
  std::string name = {};    // of a built-in format, "chatml"; or a Jinja source
  std::string source = {};  // a Jinja source; both empty: the model's own
  bool jinja = true;        // false: a built-in format that is like the model's own template
};

struct ChatOptions {
  bool add_generation_prompt = true;  // the assistant's turn begins at the end
  // Empty: the model's own. Else a Jinja source, or the name of a built-in format ("chatml").
  std::string chat_template = {};
  std::string tools = {};  // JSON: OpenAI's array; empty: none
};

// A conversation as a template writes it, for Model::Tokenize.
struct WrittenPrompt {
  std::vector<MarkedText> text;
  // Not empty: the model's own template failed, and a built-in format wrote this.
  std::string warning = {};
};

// A question about a document as two parts of a prompt: `document` is the same for all questions,
// `question` follows it. Joined they are the whole prompt.
struct DocumentPrompt {
  std::vector<MarkedText> document;
  std::vector<MarkedText> question;
  // Not empty: the template failed, or changes the document, and a built-in format wrote this.
  std::string warning = {};
};

// Writes conversations down for a model (Model::NewChatTemplate). What messages contain stays text.
// A handle, which may outlive the model. Thread-safe.
class ChatTemplate {
 public:
  std::string_view name() const;                     // "jinja", or the built-in format's
  const std::string& source() const;                 // Jinja; empty: a built-in format
  const std::vector<std::string>& warnings() const;  // of the model's own template

  // Ignores options.chat_template. Errors: what the template refuses, in its words; tools
  // that cannot be read.
  Result<WrittenPrompt> Write(std::span<const ChatMessage> messages,
                              const ChatOptions& options = {}) const;
  // Leaves out white space around the document. Errors: those of the template, an empty document.
  Result<DocumentPrompt> WriteDocument(const std::string& system, const std::string& document,
                                       const std::string& question) const;

 private:
  friend class Model;
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// A language model of a GGUF file, ready to compute. A handle: copies share the model, sessions
// keep it alive. A model and its sessions are used by one thread at a time.
class Model {
 public:
  // Errors: the file cannot be read (kFile), is damaged, or holds something winnow does not know
  // (kFormat); an option out of range (kInvalid); memory refused (kTooLarge). Thread-safe.
  static Result<Model> Open(const std::string& path, const ModelOptions& options = {});
  // Opens a GGUF file that lies in memory; `name` stands for its path in messages. Requires: the
  // bytes are aligned to 64 and outlive the model and its sessions.
  static Result<Model> Open(std::span<const std::byte> file, const std::string& name,
                            const ModelOptions& options = {});

  ModelInfo info() const;
  std::string_view architecture() const;  // "llama"
  int64_t n_parameters() const;
  int n_layers() const;
  Result<int> n_kv_heads(int layer) const;  // Error: no such layer
  int64_t context() const;                  // tokens a session can hold at most
  int64_t vocabulary_size() const;          // tokens are 0 .. vocabulary_size() - 1

  // Any bytes are accepted, valid UTF-8 or not. Cost: about linear in the text.
  std::vector<Token> Tokenize(std::string_view text, const TokenizeOptions& options = {}) const;
  // A prompt to be continued: never ends with EOS. With add_bos it begins with BOS if the model
  // wants one and the text has none.
  std::vector<Token> Tokenize(std::span<const MarkedText> text, bool add_bos = true) const;
  // A lower bound of the tokens of a text of n_bytes: refuses a text that can never fit without
  // tokenizing it. Cost: O(vocabulary).
  int64_t MinTokens(int64_t n_bytes) const;
  // Requires of the two: tokens of the vocabulary.
  std::string Detokenize(std::span<const Token> tokens) const;
  bool EndsGeneration(Token token) const;
  // A conversation as the model expects it, for Session::Generate. What messages contain stays
  // text. Errors: what the template refuses, in its words; a template or tools that cannot be read.
  Result<std::vector<Token>> ChatPrompt(std::span<const ChatMessage> messages,
                                        const ChatOptions& options = {}) const;
  // What ChatPrompt writes with, for programs that want the text or a part of it. Errors: an
  // unknown name, a source that is no template.
  Result<ChatTemplate> NewChatTemplate(const ChatTemplateOptions& options = {}) const;

  // Error: a value out of range, named.
  Result<Sampler> NewSampler(const Sampling& sampling) const;
  // Answers are JSON of this schema ("{}": any object), or text of this grammar (GBNF, llama.cpp's
  // notation).
  // Errors: not a schema or grammar (says where), one too large; a build without grammars
  // (-DWINNOW_GRAMMAR=ON).
  Result<Constraint> NewJsonConstraint(const std::string& schema) const;
  Result<Constraint> NewGrammarConstraint(const std::string& gbnf) const;

  // A text in the making, with its own cache. Errors: context out of range, memory refused.
  Result<Session> NewSession(const SessionOptions& options = {}) const;
  // A session that goes on where a saved one was, of this model and with the options it was made
  // with (another context may be given). Errors: kFile (it cannot be read), kFormat (no session
  // file, damaged, of another model), kInvalid (other options, named both; a context without room
  // for it).
  Result<Session> RestoreSession(const std::string& path, const SessionOptions& options = {}) const;
  // For many prompts at once. Errors: an option out of range, a memory limit below the model's own
  // bytes (says both numbers); kBusy while the model has another scheduler, or a session of it is
  // in the middle of a call.
  Result<Scheduler> NewScheduler(const SchedulerOptions& options = {}) const;

  // Of all sessions so far: values too large for a cache's type, which became infinite and make
  // results wrong.
  int64_t n_overflowed() const;
  // Of all sessions so far: prompt tokens that a method could not read a second time because the
  // context is full; it then chooses worse.
  int64_t n_not_replayed() const;

 private:
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend class Session;
  friend struct internal::Access;
  std::shared_ptr<Impl> impl_;
};

}  // namespace winnow

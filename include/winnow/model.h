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
  int threads = 0;      // 0: one for each core that this process may use
  int64_t context = 0;  // maximum text length in tokens; 0: the length the model was trained for
  // The results of a text are bit-identical whether it is computed alone or beside others in a
  // Scheduler. Decoding one or a few texts becomes slower (docs/reliability.md).
  bool deterministic = false;
  bool check_tensors = false;  // look for NaN and infinity in all weights; reads the whole file
  // Instruction set, such as "AVX2"; empty: the best available; "reference": plain loops.
  std::string cpu_target = {};
  // The compression that sessions will use. A method that replays prompts then gets positions
  // beyond `context` for the replay.
  Compression compression = {};
  // Error profiles of this model, as text: the output of 'winnow calibrate'. Empty: read from the
  // file beside the model's file when a method needs them.
  std::string error_profiles = {};
  // Receives warnings: facts a user should know that fail no call, such as a context longer than
  // the trained one, or a method that compresses appended tokens before it knows a question. Called
  // in the thread of the call that finds it. A Scheduler gives no warnings; n_not_replayed() counts
  // its prompts too.
  std::function<void(std::string_view message)> on_warning = {};
};

struct ModelInfo {
  std::string name = {};          // from the file; may be empty
  std::string architecture = {};  // "llama"
  std::string file_type = {};     // quantization named by the file, such as "Q4_K_M"; may be empty
  int64_t n_parameters = 0;
  int64_t file_bytes = 0;
  int64_t trained_context = 0;  // tokens
  bool has_chat_template = false;
  std::string cpu_target = {};  // instruction set in use
  int threads = 0;
  double load_ms = 0;  // time Model::Open took
};

// A piece of text, and whether control tokens written in it are parsed as such. An ordinary token
// may span two pieces; a control token is only recognized inside pieces with parse_special.
struct MarkedText {
  std::string text;
  bool parse_special = false;
  bool operator==(const MarkedText&) const = default;
};

struct TokenizeOptions {
  bool add_special = true;     // add the tokens the model expects around a text (BOS, EOS)
  bool parse_special = false;  // parse control tokens in the text: only for text you trust
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct ChatTemplateOptions {
  std::string name = {};    // name of a built-in format such as "chatml", or a Jinja source
  std::string source = {};  // a Jinja source; with `name` empty too: the model's own template
  bool jinja = true;        // false: the built-in format that resembles the model's template
};

struct ChatOptions {
  bool add_generation_prompt = true;  // end with the header of the assistant's turn
  // Empty: the model's own template. Else a Jinja source, or the name of a built-in format
  // ("chatml").
  std::string chat_template = {};
  std::string tools = {};  // JSON array of tools as in OpenAI's API; empty: none
};

// A conversation rendered by a template, for Model::Tokenize.
struct WrittenPrompt {
  std::vector<MarkedText> text;
  // Not empty: the model's own template failed, and a built-in format was used instead.
  std::string warning = {};
};

// A question about a document, as two parts of a prompt: `document` is the same for every question,
// `question` follows it. Concatenated they are the whole prompt.
struct DocumentPrompt {
  std::vector<MarkedText> document;
  std::vector<MarkedText> question;
  // Not empty: the template failed or changed the document, and a built-in format was used instead.
  std::string warning = {};
};

// Renders conversations for a model (Model::NewChatTemplate). Control tokens written in messages
// stay text. A handle, which may outlive the model. Thread-safe.
class ChatTemplate {
 public:
  std::string_view name() const;                     // "jinja", or the name of the built-in format
  const std::string& source() const;                 // the Jinja source; empty: a built-in format
  const std::vector<std::string>& warnings() const;  // about the model's own template

  // Ignores options.chat_template. Errors (kInvalid): the template rejects the conversation (the
  // message is the template's); tools that are no JSON array.
  Result<WrittenPrompt> Write(std::span<const ChatMessage> messages,
                              const ChatOptions& options = {}) const;
  // Strips white space around the document. `system` may be empty. Errors: those of the template,
  // an empty document.
  Result<DocumentPrompt> WriteDocument(const std::string& system, const std::string& document,
                                       const std::string& question) const;

 private:
  friend class Model;
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// A language model from a GGUF file, ready to compute. A handle: copies share the model, and
// sessions keep it alive. A model and its sessions are used by one thread at a time.
class Model {
 public:
  // Errors: the file cannot be read (kFile), is damaged or uses something winnow does not support
  // (kFormat); an option out of range (kInvalid); not enough memory (kTooLarge). Thread-safe.
  static Result<Model> Open(const std::string& path, const ModelOptions& options = {});
  // Opens a GGUF file that is already in memory; error messages use `name` in place of its path.
  // Requires: the bytes are aligned to 64 and outlive the model and its sessions.
  static Result<Model> Open(std::span<const std::byte> file, const std::string& name,
                            const ModelOptions& options = {});

  ModelInfo info() const;
  std::string_view architecture() const;  // "llama"
  int64_t n_parameters() const;
  int n_layers() const;
  Result<int> n_kv_heads(int layer) const;  // Error (kInvalid): no such layer
  int64_t context() const;                  // maximum of SessionOptions::context, in tokens
  int64_t vocabulary_size() const;          // tokens are 0 .. vocabulary_size() - 1

  // Accepts any bytes, valid UTF-8 or not. Cost: about linear in the text.
  std::vector<Token> Tokenize(std::string_view text, const TokenizeOptions& options = {}) const;
  // Tokenizes a prompt to be continued. It never ends with EOS. With add_bos it begins with BOS if
  // the model wants one and the text has none.
  std::vector<Token> Tokenize(std::span<const MarkedText> text, bool add_bos = true) const;
  // Tokenizes text that follows the token `last`: without BOS, and without the space that some
  // models put before a text. Requires: 0 <= last < vocabulary_size().
  std::vector<Token> TokenizeAfter(Token last, std::span<const MarkedText> text) const;
  // A lower bound on the tokens of a text of n_bytes, to reject a text that can never fit without
  // tokenizing it. Cost: O(vocabulary).
  int64_t MinTokens(int64_t n_bytes) const;
  // Both require tokens of the vocabulary.
  std::string Detokenize(std::span<const Token> tokens) const;
  bool EndsGeneration(Token token) const;
  // Renders a conversation with the model's template and tokenizes it, for Session::Generate.
  // Control tokens written in messages stay text. Errors (kInvalid): the template rejects the
  // conversation (the message is the template's); a template or tools that cannot be parsed.
  Result<std::vector<Token>> ChatPrompt(std::span<const ChatMessage> messages,
                                        const ChatOptions& options = {}) const;
  // The renderer behind ChatPrompt, for programs that need the text or a part of it. Errors
  // (kInvalid): an unknown name, a source that is no template.
  Result<ChatTemplate> NewChatTemplate(const ChatTemplateOptions& options = {}) const;

  // Error (kInvalid): a value out of range, named.
  Result<Sampler> NewSampler(const Sampling& sampling) const;
  // Responses are JSON of this schema ("{}": any object), or text of this grammar in GBNF,
  // llama.cpp's notation. Errors (kInvalid): not a schema or grammar (says where), or too large; a
  // build without grammars (needs -DWINNOW_GRAMMAR=ON).
  Result<Constraint> NewJsonConstraint(const std::string& schema) const;
  Result<Constraint> NewGrammarConstraint(const std::string& gbnf) const;

  // A new text with its own cache. Errors: an option out of range, not enough memory.
  Result<Session> NewSession(const SessionOptions& options = {}) const;
  // Restores a session that Session::Save wrote, with the same model and options (only the context
  // may differ). Errors: kFile (cannot be read), kFormat (no session file, damaged, of another
  // version or model), kInvalid (different options, both named; a context too short for it).
  Result<Session> RestoreSession(const std::string& path, const SessionOptions& options = {}) const;
  // Serves many prompts at once. Errors: an option out of range; a memory limit below the model's
  // own bytes (names both numbers); kBusy while the model has another scheduler or one of its
  // sessions is in a call.
  Result<Scheduler> NewScheduler(const SchedulerOptions& options = {}) const;

  // Over all sessions so far: values too large for a cache's type. They were stored as infinity and
  // make results wrong.
  int64_t n_overflowed() const;
  // Over all sessions so far: prompt tokens that a method should have replayed but could not
  // because the context was full. The method then decides on less information.
  int64_t n_not_replayed() const;

 private:
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend class Session;
  friend struct internal::Access;
  std::shared_ptr<Impl> impl_;
};

}  // namespace winnow

#include "conversation.h"

#include <span>
#include <utility>

#include "base/sha256.h"
#include "compression/question.h"
#include "document.h"
#include "statistics.h"
#include "transcript.h"

namespace winnow::apps {
namespace {

using tokenizer::ChatMessage;

constexpr size_t kTokensOfAnAnswer = 256;  // what a context should hold besides the conversation

// Stands for a document that was read by another command: what follows it is the same.
constexpr const char* kDocumentReadBefore = "[document]";

std::string TextHash(const std::string& text) {
  Sha256 hash;
  hash.Add(std::as_bytes(std::span(text)));
  return hash.Hex();
}

std::string TextIn(const report::Record& record, std::string_view name) {
  const report::Value* value = record.Find(name);
  const std::string* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  return text == nullptr ? "" : *text;
}

}  // namespace

Conversation::Conversation(const ChatFlags& flags, Loaded& loaded, runtime::Sampler sampler,
                           const chat::PromptWriter& writer, Texts texts, const SessionStore& store,
                           ConsoleLog& log)
    : flags_(flags),
      session_(*loaded.session),
      sampler_(std::move(sampler)),
      writer_(writer),
      texts_(std::move(texts)),
      document_hash_(texts_.document ? TextHash(*texts_.document) : ""),
      store_(store),
      log_(log) {
  Clear();
}

Result<bool> Conversation::Begin(const std::atomic<bool>& interrupted) {
  if (store_.notes() != nullptr) {
    WINNOW_TRY(Restore(*store_.notes()));
    return true;
  }
  if (!texts_.document) return true;
  return ReadDocument(interrupted);
}

Result<void> Conversation::Restore(const report::Record& notes) {
  const std::string saved_document = TextIn(notes, "document");
  if (texts_.document && saved_document != document_hash_) {
    return Error{store_.path() + ": holds " +
                 (saved_document.empty() ? "a conversation" : "another document") +
                 ", not the file of -f; give the document another --session"};
  }
  // The rest of a document's prompt must be in the format that its beginning was written in.
  const std::string saved_template = TextIn(notes, "template");
  const std::string saved_hash = TextIn(notes, "template_hash");
  const bool same = saved_template == writer_.name() &&
                    (saved_hash.empty() || saved_hash == TextHash(writer_.source()));
  if (!saved_document.empty() && !same) {
    return Error{store_.path() + ": the document was read with another chat template (" +
                 saved_template + ", not this " + std::string(writer_.name()) +
                 "); give the same --chat-template, or another --session"};
  }
  const std::string saved_system = TextIn(notes, "system");
  if (!texts_.system.empty() && texts_.system != saved_system) {
    return Error{store_.path() + ": began with another system prompt than this one"};
  }
  texts_.system = saved_document.empty() ? saved_system : "";  // a document has it before it
  document_hash_ = saved_document;
  if (!saved_document.empty()) texts_.document = kDocumentReadBefore;
  Clear();
  if (std::vector<ChatMessage> messages = MessagesIn(notes); !messages.empty()) {
    messages_ = std::move(messages);
  }
  return {};
}

Result<void> Conversation::Save() {
  if (!store_.saves() || texts_.document) return {};
  return Write();
}

Result<void> Conversation::Write() {
  report::Record notes = {{"template", std::string(writer_.name())},
                          {"template_hash", TextHash(writer_.source())},
                          {"system", texts_.system}};
  if (!document_hash_.empty()) notes.Add("document", document_hash_);
  report::List messages;
  for (const ChatMessage& message : messages_) {
    messages.emplace_back(report::Record{{"role", message.role}, {"content", message.content}});
  }
  if (document_hash_.empty()) notes.Add("messages", std::move(messages));
  WINNOW_TRY(store_.Save(session_, flags_.model, std::move(notes)));
  log_.Info("session saved: " + store_.path());
  return {};
}

Result<bool> Conversation::ReadDocument(const std::atomic<bool>& interrupted) {
  const compression::MethodPtr& method = session_.compression().method;
  if (method && compression::ChoosesByTheQuestion(*method)) {
    log_.Info("method " + MethodName(session_) +
              " chooses by what the end of the prompt attends to: it compresses the document "
              "before it knows a question");
  }
  WINNOW_TRY(CheckTextSize(session_, *texts_.document));
  WINNOW_ASSIGN(const DocumentPrompt prompt,
                DocumentQuestion(writer_, texts_.system, *texts_.document, ""));
  const std::vector<runtime::TokenId> tokens =
      session_.engine().tokenizer().EncodeMarked(prompt.document);
  WINNOW_TRY(CheckTrainedContext(flags_.model.kv, session_, static_cast<int64_t>(tokens.size())));
  ProgressLine progress("reading");
  runtime::Session::PrefillOptions prefill;
  prefill.progress = [&](double done) {
    progress.Update(done);
    return !interrupted.load();
  };
  WINNOW_ASSIGN(const bool finished, session_.Prefill(tokens, prefill));
  progress.Erase();
  if (!finished) return false;
  log_.Info("document " + std::to_string(session_.n_tokens()) + " tokens, cache " +
            CacheSizeText(session_));
  if (store_.saves()) WINNOW_TRY(Write());
  return true;
}

void Conversation::Clear() {
  // Answers to questions on a document do not see one another, but belong to one transcript.
  transcript_.clear();
  StartMessages();
}

void Conversation::StartMessages() {
  messages_.clear();
  if (!texts_.system.empty()) messages_.push_back({"system", texts_.system});
}

Result<runtime::StopReason> Conversation::Answer(std::string message,
                                                 const std::atomic<bool>& interrupted) {
  if (texts_.document) {
    transcript_ = transcript();
    StartMessages();
  }
  messages_.push_back({"user", std::move(message)});
  auto answered = AnswerLast(interrupted);
  // A message that met an error has no answer, and would stand before the next one for ever.
  if (!answered) messages_.pop_back();
  return answered;
}

std::vector<ChatMessage> Conversation::transcript() const {
  if (!texts_.document) return messages_;
  std::vector<ChatMessage> all = transcript_;
  const bool has_system = !messages_.empty() && messages_.front().role == "system";
  all.insert(all.end(), messages_.begin() + (has_system && !all.empty() ? 1 : 0), messages_.end());
  return all;
}

Result<void> Conversation::ResumeFrom(std::vector<ChatMessage> messages) {
  if (texts_.document) {
    return Error{"every message is a question on the document of -f: no conversation goes on here"};
  }
  const bool has_system = !messages.empty() && messages.front().role == "system";
  texts_.system = has_system ? messages.front().content : "";
  messages_ = std::move(messages);
  return {};
}

Result<void> Conversation::SetSystem(std::string system) {
  if (texts_.document) {
    return Error{"the document was read after its system prompt: start anew with -sys"};
  }
  const bool had_system = !messages_.empty() && messages_.front().role == "system";
  if (had_system) messages_.erase(messages_.begin());
  texts_.system = std::move(system);
  if (!texts_.system.empty())
    messages_.insert(messages_.begin(), ChatMessage{"system", texts_.system});
  return {};
}

Result<void> Conversation::SetSampler(const SamplerFlags& flags) {
  const tokenizer::Tokenizer& tokenizer = session_.engine().tokenizer();
  WINNOW_ASSIGN(const runtime::SamplerConfig config, SamplerConfigFrom(flags, tokenizer));
  WINNOW_ASSIGN(sampler_, runtime::Sampler::Make(config, tokenizer.vocabulary_size()));
  return {};
}

std::string Conversation::CacheText() const {
  const double kept = MeanKept(session_);
  return "method " + MethodName(session_) +
         (session_.budget() > 0
              ? ", at most " + std::to_string(session_.budget()) + " entries per KV head"
              : "") +
         "\ntokens " + std::to_string(session_.n_tokens()) + " of " +
         std::to_string(session_.capacity()) + ", entries per KV head " + Fixed(kept, 1) +
         "\ncache  " + CacheSizeText(session_) + ", keys " + flags_.model.key_type + ", values " +
         flags_.model.value_type;
}

Result<runtime::StopReason> Conversation::Regenerate(const std::atomic<bool>& interrupted) {
  ChatMessage before = std::move(messages_.back());
  messages_.pop_back();
  auto answered = AnswerLast(interrupted);
  if (!answered) messages_.push_back(std::move(before));
  return answered;
}

Result<std::vector<runtime::TokenId>> Conversation::Tokens() {
  const tokenizer::Tokenizer& tokenizer = session_.engine().tokenizer();
  if (!texts_.document) {
    WINNOW_ASSIGN(const chat::Prompt prompt, writer_.Write(ConversationFrom(messages_)));
    if (!prompt.warning.empty() && !std::exchange(warned_, true)) log_.Warning(prompt.warning);
    return tokenizer.EncodeMarked(prompt.text);
  }
  WINNOW_ASSIGN(
      const DocumentPrompt prompt,
      DocumentQuestion(writer_, texts_.system, *texts_.document, messages_.back().content));
  std::vector<runtime::TokenId> tokens(session_.tokens().begin(), session_.tokens().end());
  const auto question = tokenizer.EncodeMarked(prompt.question, /*add_special=*/false);
  tokens.insert(tokens.end(), question.begin(), question.end());
  return tokens;
}

Result<runtime::StopReason> Conversation::AnswerLast(const std::atomic<bool>& interrupted) {
  WINNOW_ASSIGN(const std::vector<runtime::TokenId> tokens, Tokens());
  if (static_cast<int64_t>(tokens.size()) >= session_.capacity()) {
    messages_.pop_back();
    ++n_left_out_;
    const bool alone = messages_.empty() || messages_.back().role == "system";
    log_.Warning("with this message the conversation is " + std::to_string(tokens.size()) +
                 " tokens, the context holds " + std::to_string(session_.capacity()) +
                 ": the message is left out; " + (alone ? "" : "/clear starts anew, ") + "-c " +
                 std::to_string(tokens.size() + kTokensOfAnAnswer) + " holds it" +
                 (session_.compression().method
                      ? ""
                      : ", --kv-method streaming --kv-size 1024 --prefill-chunk 512 reads texts of "
                        "any length"));
    return runtime::StopReason::kContext;
  }
  WINNOW_TRY(CheckTrainedContext(flags_.model.kv, session_, static_cast<int64_t>(tokens.size())));
  std::unique_ptr<runtime::Session> on_document;
  if (texts_.document) {
    WINNOW_ASSIGN(on_document, session_.Fork());
  }
  runtime::Session& session = on_document ? *on_document : session_;
  const int64_t n_read = session.KeepCommonPrefix(tokens);
  const auto fits = session.CheckRoom(static_cast<int64_t>(tokens.size()) - n_read);
  if (!fits) {
    messages_.pop_back();
    ++n_left_out_;
    log_.Warning(fits.error().message + "; the message is left out, /clear starts anew");
    return runtime::StopReason::kContext;
  }
  ProgressLine progress("reading");
  runtime::GenerateOptions options;
  options.max_tokens = flags_.n_predict;
  options.stop = flags_.stop;
  options.cancel = &interrupted;
  options.on_prefill = [&](double done) { progress.Update(done); };
  options.on_text = [&](std::string_view text) {
    progress.Erase();
    Print(text);
    Flush();
  };
  WINNOW_ASSIGN(const runtime::Generated generated, Generate(session, sampler_, tokens, options));
  progress.Erase();
  Print("\n");
  Flush();
  messages_.push_back({"assistant", generated.text});
  Report(generated, session);
  return generated.stop_reason;
}

void Conversation::Report(const runtime::Generated& generated, const runtime::Session& session) {
  last_statistics_ = StatisticsText(generated, session, session_.engine().load_ms());
  const bool full = session.n_tokens() >= session.capacity();
  if (generated.stop_reason == runtime::StopReason::kContext && !full) {
    log_.Warning("the answer ends here: the cache has reached --kv-memory" +
                 std::string(session.compression().method ? "; the next message makes room"
                                                          : ": /clear starts anew"));
  } else if (generated.stop_reason == runtime::StopReason::kContext) {
    log_.Warning("the context of " + std::to_string(session_.capacity()) +
                 " tokens is full: /clear starts anew");
  }
  if (!flags_.statistics) return;
  const runtime::GenerateTimings& t = generated.timings;
  const auto part = [](const char* name, int64_t n_tokens, double per_second) {
    return std::string(name) + " " + std::to_string(n_tokens) + " tokens, " + Fixed(per_second, 1) +
           " tokens/s; ";
  };
  log_.Info("[" + part("prefill", t.n_prefill, t.prefill_tokens_per_second()) +
            part("decode", t.n_decode, t.decode_tokens_per_second()) + "context " +
            std::to_string(session.n_tokens()) + " of " + std::to_string(session.capacity()) +
            (session.compression().method ? ", cache " + CacheSizeText(session) : "") + "]");
}

}  // namespace winnow::apps

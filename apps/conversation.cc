#include "conversation.h"

#include <span>
#include <utility>

#include "base/fixed.h"
#include "base/sha256.h"
#include "document.h"
#include "interrupt.h"
#include "statistics.h"
#include "transcript.h"

namespace winnow::apps {
namespace {

// Placeholder for a document that an earlier command read; only the text after it is used.
constexpr const char* kDocumentPlaceholder = "[document]";

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

Conversation::Conversation(const ChatFlags& flags, LoadedModel& loaded, Sampler sampler,
                           ChatTemplate chat_template, Texts texts, const SessionStore& store,
                           ConsoleLog& log)
    : flags_(flags),
      model_(loaded.model),
      session_(loaded.session),
      sampler_(std::move(sampler)),
      template_(std::move(chat_template)),
      texts_(std::move(texts)),
      document_hash_(texts_.document ? TextHash(*texts_.document) : ""),
      store_(store),
      log_(log) {
  Clear();
}

Result<bool> Conversation::Begin() {
  if (store_.notes() != nullptr) {
    WINNOW_TRY(Restore(*store_.notes()));
    return true;
  }
  if (!texts_.document) return true;
  return ReadDocument();
}

Result<void> Conversation::Restore(const report::Record& notes) {
  const std::string saved_document = TextIn(notes, "document");
  if (store_.saves() && saved_document.empty() && notes.Find("messages") == nullptr) {
    return Error{store_.path() +
                 ": belongs to 'winnow run', whose text this chat would overwrite; "
                 "--session-read-only leaves the file as it is"};
  }
  if (texts_.document && saved_document != document_hash_) {
    return Error{store_.path() + ": holds " +
                 (saved_document.empty() ? "a conversation" : "another document") +
                 ", not the file of -f; give the document another --session"};
  }
  // The rest of a document's prompt must have the format of its beginning.
  const std::string saved_template = TextIn(notes, "template");
  const std::string saved_hash = TextIn(notes, "template_hash");
  const bool same = saved_template == template_.name() &&
                    (saved_hash.empty() || saved_hash == TextHash(template_.source()));
  if (!saved_document.empty() && !same) {
    return Error{store_.path() + ": the document was read with another chat template (" +
                 saved_template + ", not this " + std::string(template_.name()) +
                 "); give the same --chat-template, or another --session"};
  }
  const std::string saved_system = TextIn(notes, "system");
  if (!texts_.system.empty() && texts_.system != saved_system) {
    return Error{store_.path() + ": began with another system prompt than this one"};
  }
  texts_.system = saved_document.empty() ? saved_system : "";  // the document's prompt has it
  document_hash_ = saved_document;
  if (!saved_document.empty()) texts_.document = kDocumentPlaceholder;
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
  report::Record notes = {{"template", std::string(template_.name())},
                          {"template_hash", TextHash(template_.source())},
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

Result<bool> Conversation::ReadDocument() {
  if (const SessionInfo info = session_.info(); info.needs_question) {
    log_.Info("method " + info.method +
              " chooses by what the end of the prompt attends to: it compresses the document "
              "before it knows a question");
  }
  WINNOW_TRY(CheckTextSize(model_, session_.capacity(), *texts_.document));
  WINNOW_ASSIGN(const DocumentPrompt prompt,
                template_.WriteDocument(texts_.system, *texts_.document, ""));
  if (!prompt.warning.empty() && !std::exchange(warned_, true)) log_.Warning(prompt.warning);
  const std::vector<Token> tokens = model_.Tokenize(prompt.document);
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  WINNOW_TRY(CheckTrainedContext(flags_.model.kv, model_, session_, n_tokens));
  WINNOW_TRY(CheckTokens("the document", n_tokens, session_.capacity()));
  ProgressLine progress("reading");
  const auto read = session_.Append(
      tokens,
      {.on_progress = [&](double done) { progress.Update(done); }, .cancel = InterruptToken()});
  if (!read && read.error().code != ErrorCode::kCancelled) return read.error();
  progress.Erase();
  if (!read) return false;
  log_.Info("document " + std::to_string(session_.tokens().size()) + " tokens, cache " +
            CacheSizeText(session_) + QualityText(session_));
  if (store_.saves()) WINNOW_TRY(Write());
  return true;
}

void Conversation::Clear() {
  // Questions about a document are independent, but share one transcript.
  transcript_.clear();
  StartMessages();
}

void Conversation::StartMessages() {
  messages_.clear();
  if (!texts_.system.empty()) messages_.push_back({"system", texts_.system});
}

Result<StopReason> Conversation::Answer(std::string message) {
  if (texts_.document) {
    transcript_ = transcript();
    StartMessages();
  }
  messages_.push_back({"user", std::move(message)});
  auto answered = AnswerLast();
  // Remove a message that got no answer; it would otherwise precede the next message.
  if (!can_regenerate()) messages_.pop_back();
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
  WINNOW_ASSIGN(const Sampling sampling, SamplingFrom(flags, model_));
  WINNOW_ASSIGN(sampler_, model_.NewSampler(sampling));
  return {};
}

std::string Conversation::CacheText() const {
  const double kept = MeanKept(session_);
  const SessionInfo info = session_.info();
  std::string size;
  if (info.budget >= session_.capacity()) {
    size = ", every entry stays";
  } else if (info.budget > 0) {
    size = ", a budget of " + std::to_string(info.budget) + " entries per KV head";
  }
  return "method " + info.method + size + "\ntokens " + std::to_string(session_.tokens().size()) +
         " of " + std::to_string(session_.capacity()) + ", entries per KV head " + Fixed(kept, 1) +
         "\ncache  " + CacheSizeText(session_) + ", keys " + flags_.model.key_type + ", values " +
         flags_.model.value_type;
}

Result<StopReason> Conversation::Regenerate() {
  ChatMessage before = std::move(messages_.back());
  messages_.pop_back();
  auto answered = AnswerLast();
  if (!can_regenerate()) messages_.push_back(std::move(before));
  return answered;
}

Result<std::vector<Token>> Conversation::Tokens() {
  if (!texts_.document) {
    WINNOW_ASSIGN(const WrittenPrompt prompt, template_.Write(messages_));
    if (!prompt.warning.empty() && !std::exchange(warned_, true)) log_.Warning(prompt.warning);
    return model_.Tokenize(prompt.text);
  }
  WINNOW_ASSIGN(const DocumentPrompt prompt,
                template_.WriteDocument(texts_.system, *texts_.document, messages_.back().content));
  if (!prompt.warning.empty() && !std::exchange(warned_, true)) log_.Warning(prompt.warning);
  std::vector<Token> tokens(session_.tokens().begin(), session_.tokens().end());
  const auto question = model_.TokenizeAfter(tokens.back(), prompt.question);
  tokens.insert(tokens.end(), question.begin(), question.end());
  return tokens;
}

Result<StopReason> Conversation::DropMessage(const std::string& reason) {
  ++n_left_out_;
  log_.Warning(reason);
  return StopReason::kContext;
}

Result<StopReason> Conversation::AnswerLast() {
  WINNOW_ASSIGN(const std::vector<Token> tokens, Tokens());
  if (static_cast<int64_t>(tokens.size()) >= session_.capacity()) {
    const bool alone = messages_.size() == 1 || messages_[messages_.size() - 2].role == "system";
    return DropMessage(
        "with this message the conversation is " + std::to_string(tokens.size()) +
        " tokens, the context holds " + std::to_string(session_.capacity()) +
        ": the message is left out; " + (alone || texts_.document ? "" : "/clear starts anew, ") +
        "-c " + std::to_string(static_cast<int64_t>(tokens.size()) + kTokensOfAnAnswer) +
        " holds it" +
        (evicts() ? ""
                  : ", --kv-method streaming --kv-size 1024 --prefill-chunk 512 reads "
                    "texts of any length"));
  }
  WINNOW_TRY(
      CheckTrainedContext(flags_.model.kv, model_, session_, static_cast<int64_t>(tokens.size())));
  std::optional<Session> on_document;
  if (texts_.document) {
    WINNOW_ASSIGN(on_document, session_.Fork());
  }
  Session& session = on_document ? *on_document : session_;
  ProgressLine progress("reading");
  GenerateOptions options;
  options.max_tokens = flags_.n_predict;
  options.stop = flags_.stop;
  options.cancel = InterruptToken();
  options.sampler = sampler_;
  options.on_prefill = [&](double done) { progress.Update(done); };
  bool read = false;
  options.on_prompt = [&] { read = true; };
  options.on_text = [&](std::string_view text) {
    progress.Erase();
    Print(text);
    return Flush();
  };
  const auto answered = session.Generate(tokens, options);
  progress.Erase();
  if (!answered && !read && answered.error().code != ErrorCode::kInternal) {
    return DropMessage(answered.error().message + "; the message is left out" +
                       (texts_.document ? "" : ", /clear starts anew"));
  }
  WINNOW_ASSIGN(const Generation generated, answered);
  if (generated.stop_reason == StopReason::kCancelled && generated.tokens.empty()) {
    log_.Warning("interrupted while the prompt was read: the message is left out");
    return generated.stop_reason;
  }
  Print("\n");
  Flush();
  messages_.push_back({"assistant", generated.text});
  Report(generated, session);
  return generated.stop_reason;
}

void Conversation::Report(const Generation& generated, const Session& session) {
  last_statistics_ = StatisticsText(generated, session, model_.info().load_ms);
  const bool full = static_cast<int64_t>(session.tokens().size()) >= session.capacity();
  if (generated.stop_reason == StopReason::kContext && !full) {
    log_.Warning("the answer ends here: the cache has reached --kv-memory" +
                 std::string(texts_.document ? ""
                             : evicts()      ? "; the next message makes room"
                                             : ": /clear starts anew"));
  } else if (generated.stop_reason == StopReason::kContext) {
    log_.Warning("the context of " + std::to_string(session_.capacity()) + " tokens is full: " +
                 (texts_.document ? "-c N with a larger N leaves more for an answer"
                                  : "/clear starts anew"));
  }
  if (!flags_.statistics) return;
  const auto part = [](const char* name, int64_t n_tokens, double per_second) {
    return std::string(name) + " " + std::to_string(n_tokens) + " tokens, " + Fixed(per_second, 1) +
           " tokens/s; ";
  };
  log_.Info("[" + part("prefill", generated.prefill_tokens, generated.prefill_tokens_per_second()) +
            part("decode", generated.decode_tokens, generated.decode_tokens_per_second()) +
            "context " + std::to_string(session.tokens().size()) + " of " +
            std::to_string(session.capacity()) +
            (evicts() ? ", cache " + CacheSizeText(session) : "") + "]");
}

}  // namespace winnow::apps

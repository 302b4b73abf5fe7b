#include <optional>

#include "chat_input.h"
#include "command_files.h"
#include "commands.h"
#include "document.h"
#include "interrupt.h"
#include "options.h"
#include "overflow.h"
#include "runtime/generate.h"
#include "statistics.h"
#include "text_input.h"
#include "tokenizer/chat_template.h"

namespace winnow::apps {
namespace {

using tokenizer::ChatMessage;
using tokenizer::ChatTemplate;

constexpr const char* kCommandHelp =
    "/regen      answer the last message again\n"
    "/clear      forget the conversation\n"
    "/read FILE  put the text of a file before your next message\n"
    "/exit       end (also Ctrl-D)\n"
    "A line that ends in \\ goes on in the next one. Ctrl-C stops an answer.";

struct ChatFlags {
  ModelFlags model;
  SamplerFlags sampler;
  std::optional<std::string> system;
  std::optional<std::string> system_file;
  std::optional<std::string> first_message;
  std::optional<std::string> document;
  std::string chat_template;
  std::vector<std::string> stop;
  int64_t n_predict = -1;
  bool single_turn = false;
  bool statistics = true;
  std::vector<std::string> notes;
};

FlagTable MakeTable(ChatFlags& flags) {
  FlagTable table("chat", "[-m FILE] [flags]",
                  "A conversation with a model: one line is one message, answers go to stdout. "
                  "Commands: /regen, /clear, /read FILE, /exit. Works through a pipe too. With -f "
                  "the messages are questions on a document, each answered on its own.");
  table.Group("Conversation");
  table.Add({"-sys", "--system-prompt"}, "TEXT", "what the model is told beforehand",
            &flags.system);
  table.Add({"-sysf", "--system-prompt-file"}, "FILE", "the same, from a file", &flags.system_file);
  table.Add({"-p", "--prompt"}, "TEXT", "the first message", &flags.first_message);
  table.Add({"-f", "--file"}, "FILE",
            "a document, read and compressed once; every message is a question on it, answered "
            "from the same cache without the questions before",
            &flags.document);
  table.Switch({"-st", "--single-turn"}, "one message, one answer, then end", &flags.single_turn);
  std::string names;
  for (const std::string_view name : tokenizer::ChatTemplateNames()) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  table.Add(
      {"--chat-template"}, "NAME",
      "how the conversation is written down; empty: as the model's file says. There are " + names,
      &flags.chat_template);
  table.Add({"-n", "--predict", "--n-predict"}, "N",
            "tokens of an answer at most; -1: until the model ends or the context is full",
            &flags.n_predict);
  table.Add({"-r", "--reverse-prompt", "--stop"}, "TEXT",
            "end an answer before this text; can be repeated", &flags.stop);
  table.Switch({"--no-perf"}, "no line of statistics after an answer", &flags.statistics, false);
  AddModelFlags(table, flags.model);
  AddKvFlags(table, flags.model.kv);
  AddSamplerFlags(table, flags.sampler);
  AddLogFlags(table, flags.model);
  AddForeignFlags(table, flags.notes);
  // What they ask for is how it is: messages are a conversation, coloured on a terminal, with the
  // built-in templates.
  table.Add({{"-cnv", "--conversation", "-co", "--color", "--no-jinja"},
             "",
             "",
             "",
             {},
             true,
             [](std::string_view) { return Result<void>(); }});
  table.Add({{"--jinja"}, "", "", "", {}, true, [&flags](std::string_view) {
               flags.notes.emplace_back(
                   "--jinja has no effect: the built-in templates are used, see --chat-template");
               return Result<void>();
             }});
  return table;
}

// What every conversation begins with.
struct Texts {
  std::string system;
  std::optional<std::string> document;
};

class Conversation {
 public:
  Conversation(const ChatFlags& flags, Loaded& loaded, runtime::Sampler sampler,
               ChatTemplate chat_template, Texts texts, ConsoleLog& log)
      : flags_(flags),
        session_(*loaded.session),
        sampler_(std::move(sampler)),
        template_(chat_template),
        texts_(std::move(texts)),
        log_(log) {
    Clear();
  }

  // Reads the document, if there is one: later answers start from what is kept of it. False:
  // interrupted.
  Result<bool> ReadDocument(const std::atomic<bool>& interrupted) {
    if (!texts_.document) return true;
    const compression::MethodPtr& method = session_.compression().method;
    if (method && ChoosesByTheQuestion(*method)) {
      log_.Info("method " + MethodName(session_) +
                " chooses by what the end of the prompt attends to: it compresses the document "
                "before it knows a question");
    }
    WINNOW_ASSIGN(const DocumentPrompt prompt,
                  AskAbout(template_, texts_.system, *texts_.document, ""));
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
    if (finished) {
      log_.Info("document " + std::to_string(session_.n_tokens()) + " tokens, cache " +
                CacheSizeText(session_));
    }
    return finished;
  }

  void Clear() {
    messages_.clear();
    if (!texts_.system.empty()) messages_.push_back({"system", texts_.system});
  }

  // Answers a message on stdout. A message that does not fit is told of and forgotten.
  Result<runtime::StopReason> Answer(std::string message, const std::atomic<bool>& interrupted) {
    if (texts_.document) Clear();
    messages_.push_back({"user", std::move(message)});
    return AnswerLast(interrupted);
  }

  bool can_regenerate() const { return !messages_.empty() && messages_.back().role == "assistant"; }
  Result<runtime::StopReason> Regenerate(const std::atomic<bool>& interrupted) {
    messages_.pop_back();
    return AnswerLast(interrupted);
  }

 private:
  // The prompt of the last message.
  Result<std::vector<runtime::TokenId>> Tokens() const {
    const tokenizer::Tokenizer& tokenizer = session_.engine().tokenizer();
    if (!texts_.document) {
      WINNOW_ASSIGN(const auto stretches, template_.Format(messages_, true));
      return tokenizer.EncodeMarked(stretches);
    }
    WINNOW_ASSIGN(const DocumentPrompt prompt,
                  AskAbout(template_, texts_.system, *texts_.document, messages_.back().content));
    std::vector<runtime::TokenId> tokens(session_.tokens().begin(), session_.tokens().end());
    const auto question = tokenizer.EncodeMarked(prompt.question, /*add_special=*/false);
    tokens.insert(tokens.end(), question.begin(), question.end());
    return tokens;
  }

  Result<runtime::StopReason> AnswerLast(const std::atomic<bool>& interrupted) {
    WINNOW_ASSIGN(const std::vector<runtime::TokenId> tokens, Tokens());
    if (static_cast<int64_t>(tokens.size()) >= session_.capacity()) {
      messages_.pop_back();
      log_.Warning("with this message the conversation is " + std::to_string(tokens.size()) +
                   " tokens, the context holds " + std::to_string(session_.capacity()) +
                   ": the message is left out; /clear starts anew");
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

  void Report(const runtime::Generated& generated, const runtime::Session& session) {
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
      return std::string(name) + " " + std::to_string(n_tokens) + " tokens, " +
             Fixed(per_second, 1) + " tokens/s; ";
    };
    log_.Info("[" + part("prefill", t.n_prefill, t.prefill_tokens_per_second()) +
              part("decode", t.n_decode, t.decode_tokens_per_second()) + "context " +
              std::to_string(session.n_tokens()) + " of " + std::to_string(session.capacity()) +
              (session.compression().method ? ", cache " + CacheSizeText(session) : "") + "]");
  }

  const ChatFlags& flags_;
  runtime::Session& session_;
  runtime::Sampler sampler_;
  ChatTemplate template_;
  Texts texts_;
  ConsoleLog& log_;
  std::vector<ChatMessage> messages_;
};

Result<Texts> ReadTexts(const ChatFlags& flags, Log& log) {
  Texts texts = {.system = flags.system.value_or(""), .document = {}};
  if (flags.system_file) {
    WINNOW_ASSIGN(texts.system, ReadTextFile(*flags.system_file, false, log));
    texts.system = WithoutFinalNewline(std::move(texts.system));
  }
  if (flags.document) {
    WINNOW_ASSIGN(texts.document, ReadTextFile(*flags.document, false, log));
  }
  return texts;
}

// Reads messages and commands until the end. Returns the exit code.
int Talk(const ChatFlags& flags, Conversation& conversation, ConsoleLog& log,
         const std::atomic<bool>& interrupted) {
  ChatInput input;
  if (input.is_terminal() && !flags.first_message) {
    log.Info("Type a message. /help lists the commands, /exit or Ctrl-D ends.\n");
  }
  std::optional<std::string> next = flags.first_message;
  std::string attached;
  for (;;) {
    std::string line;
    if (next) {
      line = *std::exchange(next, std::nullopt);
    } else {
      const ChatInput::End end = input.Read(&line);
      if (end == ChatInput::End::kInterrupted) {
        Print("\n");
        Flush();
        return InterruptedCode();
      }
      if (end == ChatInput::End::kEndOfInput) {
        if (input.is_terminal()) Print("\n");
        return FinishOutput();
      }
    }
    std::optional<Result<runtime::StopReason>> answer;
    if (line == "/exit" || line == "/quit") return FinishOutput();
    if (line == "/help") {
      log.Info(kCommandHelp);
    } else if (line == "/clear") {
      conversation.Clear();
      attached.clear();
      log.Info("The conversation is forgotten.");
    } else if (line == "/regen") {
      if (conversation.can_regenerate()) {
        answer = conversation.Regenerate(interrupted);
      } else {
        log.Warning("there is no answer yet");
      }
    } else if (line.starts_with("/read ")) {
      auto text = ReadTextFile(line.substr(6), false, log);
      if (text) {
        log.Info("Read " + HumanBytes(static_cast<int64_t>(text->size())) +
                 "; now type what to do with it.");
        attached += WithoutFinalNewline(*std::move(text)) + "\n";
      } else {
        log.Error(text.error().message);
      }
    } else if (line.starts_with('/') && line.find(' ') == std::string::npos &&
               line.find('/', 1) == std::string::npos) {
      log.Warning("unknown command " + line + "; /help lists them");
    } else if (!line.empty()) {
      answer = conversation.Answer(std::exchange(attached, {}) + line, interrupted);
    }
    if (!answer) continue;
    if (!*answer) return Fail(answer->error());
    const bool cancelled = **answer == runtime::StopReason::kCancelled;
    if (IsTerminated() || (flags.single_turn && cancelled)) return InterruptedCode();
    if (flags.single_turn) return FinishOutput();
    ClearInterrupt();
  }
}

}  // namespace

int Chat(Arguments arguments) {
  ChatFlags flags;
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  const auto valid = Validate(flags.model);
  if (!valid) return Misuse("chat", valid.error().message);
  if (flags.n_predict < -1) return Misuse("chat", "flag -n: expected -1 or more");
  if (flags.system && flags.system_file) return Misuse("chat", "give only one of -sys and -sysf");
  if (!flags.chat_template.empty()) {
    const auto named = ChatTemplate::ByName(flags.chat_template);
    if (!named) return Misuse("chat", named.error().message);
  }
  CommandFiles files;
  files.UsesModel(flags.model);
  for (const auto& text : {flags.document, flags.system_file}) files.Reads("-f or -sysf", text);
  if (const auto over = files.Refused("chat")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  const auto texts = ReadTexts(flags, log);
  if (!texts) return Fail(texts.error());
  const std::atomic<bool>& interrupted = CatchInterrupt();
  auto loaded = Load(flags.model, log);
  if (!loaded) return Fail(loaded.error());
  const OverflowWarning overflow(*loaded->engine, log);
  const tokenizer::Tokenizer& tokenizer = loaded->engine->tokenizer();
  const auto chat_template = ChooseTemplate(flags.chat_template, loaded->engine->file(), log);
  if (!chat_template) return Fail(chat_template.error());
  log.Info("chat   " + std::string(chat_template->name()) + " template");
  const auto config = SamplerConfigOf(flags.sampler, tokenizer);
  if (!config) return Misuse("chat", config.error().message);
  auto sampler = runtime::Sampler::Make(*config, tokenizer.vocabulary_size());
  if (!sampler) return Misuse("chat", sampler.error().message);

  Conversation conversation(flags, *loaded, std::move(sampler).value(), *chat_template, *texts,
                            log);
  const auto read = conversation.ReadDocument(interrupted);
  if (!read) return Fail(read.error());
  const int code = *read ? Talk(flags, conversation, log, interrupted) : InterruptedCode();
  if (const auto finished = FinishTrace(*loaded); !finished) return Fail(finished.error());
  return code;
}

}  // namespace winnow::apps

#include <optional>

#include "chat_commands.h"
#include "chat_history.h"
#include "chat_input.h"
#include "command_files.h"
#include "commands.h"
#include "conversation.h"
#include "interrupt.h"
#include "load.h"
#include "options.h"
#include "process.h"
#include "result_warnings.h"
#include "statistics.h"
#include "template_flags.h"
#include "text_input.h"

namespace winnow::apps {
namespace {

FlagTable MakeTable(ChatFlags& flags) {
  FlagTable table("chat", "[-m FILE] [flags]",
                  "A conversation with a model: one line is one message, answers go to stdout. "
                  "/help lists the commands. Works through a pipe too. With -f "
                  "the messages are questions on a document, each answered on its own.");
  table.Group("Conversation");
  table.Add({"-sys", "--system-prompt"}, "TEXT", "system prompt", &flags.system);
  table.Add({"-sysf", "--system-prompt-file"}, "FILE", "the same, from a file", &flags.system_file);
  table.Add({"-p", "--prompt"}, "TEXT", "the first message", &flags.first_message);
  table.Add({"-f", "--file"}, "FILE",
            "a document, read and compressed once; every message is a question on it, answered "
            "from the same cache without the questions before",
            &flags.document);
  table.Switch({"-st", "--single-turn"}, "one message, one answer, then end", &flags.single_turn);
  AddTemplateFlags(table, flags.chat_template, flags.chat_template_file);
  table.Add({"-n", "--predict", "--n-predict"}, "N",
            "maximum tokens of an answer; -1: until the model ends or the context is full",
            &flags.n_predict);
  table.Add({"-r", "--reverse-prompt", "--stop"}, "TEXT",
            "end an answer before this text; can be repeated", &flags.stop);
  table.Switch({"-e", "--escape"}, "understand \\n, \\t, \\\\, \\xHH and the like in -p and -r",
               &flags.escape);
  table.Switch({"--no-escape"}, "leave backslashes alone", &flags.escape, false);
  table.Switch({"--no-perf"}, "no line of statistics after an answer", &flags.statistics, false);
  table.Add({"--history-file"}, "FILE", "history file for messages typed on a terminal",
            &flags.history_file);
  table.Add({{"--no-history"}, "", "keep no history", "", {}, false, [&flags](std::string_view) {
               flags.history_file.clear();
               return Result<void>();
             }});
  AddSessionFlags(
      table, flags.session,
      "session file for the conversation, or for the document of -f. If FILE exists, the "
      "chat continues from there, without -f; cache flags that are not given are taken "
      "from it. A conversation is saved when the chat ends, a document once it is read");
  AddModelFlags(table, flags.model);
  AddKvFlags(table, flags.model.kv);
  AddSamplerFlags(table, flags.sampler);
  AddLogFlags(table, flags.model);
  AddForeignFlags(table, flags.notes);
  // Accepted without effect: they ask for what chat does anyway (a conversation, coloured on a
  // terminal).
  table.Add({{"-co", "--color"}, "", "", "", {"on", "off", "auto"}, true, [](std::string_view) {
               return Result<void>();
             }});
  table.Add({{"-cnv", "--conversation", "-mli", "--multiline-input"},
             "",
             "",
             "",
             {},
             true,
             [](std::string_view) { return Result<void>(); }});
  return table;
}

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

// The exit code. A script must learn that a message was not answered, or not to its end; a user on
// a terminal has seen it.
int Finished(const Conversation& conversation, bool is_terminal, bool was_cancelled) {
  const int printed = FinishOutput();
  if (printed != kDone || is_terminal) return printed;
  if (was_cancelled) return InterruptedCode();
  return conversation.n_left_out() > 0 ? kFailed : kDone;
}

// Reads messages and commands until the end of input. Returns the exit code.
int RunChat(ChatFlags& flags, Conversation& conversation, ConsoleLog& log,
            const std::atomic<bool>& interrupted) {
  ChatInput input({.commands = ChatCommands::Names(),
                   .take_file = ChatCommands::TakeFile(),
                   .history_file = flags.history_file},
                  interrupted, log);
  ChatCommands commands(flags, conversation, log);
  if (input.is_terminal() && !flags.first_message) {
    log.Info("Type a message. /help lists the commands, /bye or Ctrl-D ends.\n");
  }
  std::optional<std::string> next = flags.first_message;
  bool was_cancelled = false;  // whether an answer was interrupted
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
      if (end == ChatInput::End::kFailed) return kFailed;
      if (end == ChatInput::End::kEndOfInput) {
        if (input.is_terminal()) Print("\n");
        return Finished(conversation, input.is_terminal(), was_cancelled);
      }
    }
    if (line.empty()) continue;
    auto done = commands.Run(line);
    if (!done) {
      done.emplace();
      done->answer = conversation.Answer(commands.TakeAttached() + line);
    }
    if (done->ends) return Finished(conversation, input.is_terminal(), was_cancelled);
    if (!done->answer) continue;
    if (!*done->answer) return Fail(done->answer->error());
    if (!Flush()) return FinishOutput();
    was_cancelled = was_cancelled || **done->answer == StopReason::kCancelled;
    if (IsTerminated()) return InterruptedCode();
    if (flags.single_turn) return Finished(conversation, false, was_cancelled);
    ClearInterrupt();
  }
}

}  // namespace

int Chat(Arguments arguments) {
  IgnoreBrokenPipes();
  ChatFlags flags;
  flags.history_file = DefaultHistoryFile();
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (const auto valid = SessionStore::Check(flags.session); !valid) {
    return Misuse("chat", valid.error().message);
  }
  const auto store = SessionStore::Open(flags.session, table, flags.model);
  if (!store) return Fail(store.error());
  const auto valid = Validate(flags.model);
  if (!valid) return Misuse("chat", valid.error().message);
  if (flags.escape) {
    if (flags.first_message) flags.first_message = Unescaped(*flags.first_message);
    for (std::string& stop : flags.stop) stop = Unescaped(stop);
  }
  if (flags.n_predict < -1) return Misuse("chat", "flag -n: expected -1 or more");
  if (flags.system && flags.system_file) return Misuse("chat", "give only one of -sys and -sysf");
  if (const auto named = CheckTemplateFlags(flags.chat_template, flags.chat_template_file);
      !named) {
    return Misuse("chat", named.error().message);
  }
  CommandFiles files;
  files.UsesModel(flags.model);
  for (const auto& text : {flags.document, flags.system_file}) files.Reads("-f or -sysf", text);
  files.Reads("--chat-template-file", flags.chat_template_file);
  if (table.Given("--history-file") && !flags.history_file.empty()) {
    files.Writes("--history-file", flags.history_file, Output::kHistory);
  }
  if (store->saves()) {
    files.Writes("--session", flags.session.file);
  } else {
    files.Reads("--session", flags.session.file);
  }
  if (const auto over = files.Refused("chat")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  const auto texts = ReadTexts(flags, log);
  if (!texts) return Fail(texts.error());
  const std::atomic<bool>& interrupted = CatchInterrupt();
  auto loaded = LoadModel(flags.model, log);
  if (!loaded) return Fail(loaded.error());
  const Model& model = loaded->model;
  const ResultWarnings warnings(model, log);
  const auto chat_template =
      MakeTemplate(flags.chat_template, flags.chat_template_file, model, log);
  if (!chat_template) return Fail(chat_template.error());
  const auto sampling = SamplingFrom(flags.sampler, model);
  if (!sampling) return Misuse("chat", sampling.error().message);
  const auto sampler = model.NewSampler(*sampling);
  if (!sampler) return Misuse("chat", sampler.error().message);

  Conversation conversation(flags, *loaded, *sampler, *chat_template, *texts, *store, log);
  const auto begun = conversation.Begin();
  if (!begun) return Fail(begun.error());
  const int code = *begun ? RunChat(flags, conversation, log, interrupted) : InterruptedCode();
  if (*begun) {
    if (const auto saved = conversation.Save(); !saved) return Fail(saved.error());
  }
  if (const auto finished = FinishTrace(*loaded); !finished) return Fail(finished.error());
  return code;
}

}  // namespace winnow::apps

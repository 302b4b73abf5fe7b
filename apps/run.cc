#include "base/fixed.h"
#include "command_files.h"
#include "commands.h"
#include "constraint_flags.h"
#include "document.h"
#include "interrupt.h"
#include "load.h"
#include "options.h"
#include "process.h"
#include "result_warnings.h"
#include "session_store.h"
#include "statistics.h"
#include "template_flags.h"
#include "text_input.h"

namespace winnow::apps {
namespace {

constexpr int64_t kTokensOfAnAnswer = 256;  // what a context should hold besides its prompt

// A prompt that is a conversation's first message, as `llama-cli -sys` has it.
struct ChatPrompt {
  chat::WriterOptions writer = {};
  std::optional<std::string> writer_file = {};
  std::optional<std::string> system = {};
  std::optional<std::string> system_file = {};
  bool jinja = false;  // --jinja was given

  bool asked_for() const {
    return jinja || system || system_file || writer_file || !writer.built_in.empty();
  }
};

struct RunFlags {
  ModelFlags model;
  ChatPrompt chat;
  SamplerFlags sampler;
  ConstraintFlags constraint;
  SessionFlags session;
  TextSource prompt;
  int64_t n_predict = -1;
  bool escape = true;
  enum class Display { kNone, kEnd, kAll };
  Display display = Display::kEnd;  // of the prompt
  bool statistics = true;
  std::string colour = "off";
  bool add_bos = true;
  bool json = false;
  std::vector<std::string> stop;
  std::vector<std::string> notes;
};

FlagTable MakeTable(RunFlags& flags) {
  FlagTable table(
      "run", "[-m FILE] [-p TEXT | -f FILE] [flags]",
      "Continues a text. The prompt and what follows it go to stdout as they are made, "
      "everything else to stderr. Ctrl-C stops after the current token; exit code 130.");
  table.Group("Text");
  table.Add({"-p", "--prompt"}, "TEXT", "the text to continue", &flags.prompt.text);
  table.Add(
      {"-f", "--file"}, "FILE",
      "read it from a file, '-' for standard input; a final newline is dropped. Without -p and "
      "-f, a pipe is read",
      &flags.prompt.file);
  table.Add({"-n", "--predict", "--n-predict"}, "N",
            "tokens to generate at most; -1: until the model ends or the context is full",
            &flags.n_predict);
  table.Add({"-r", "--reverse-prompt", "--stop"}, "TEXT", "stop before this text; can be repeated",
            &flags.stop);
  table.Switch({"-e", "--escape"}, "understand \\n, \\t, \\\\, \\xHH and the like in -p and -r",
               &flags.escape);
  table.Switch({"--no-escape"}, "leave backslashes alone", &flags.escape, false);
  AddRawTextFlag(table, flags.prompt);
  table.Switch({"--no-bos"}, "no begin-of-text token, even where the model wants one",
               &flags.add_bos, false);
  table.Group("As one message of a conversation, where any of these is given");
  table.Add({"-sys", "--system-prompt"}, "TEXT", "what the model is told beforehand",
            &flags.chat.system);
  table.Add({"-sysf", "--system-prompt-file"}, "FILE", "the same, from a file",
            &flags.chat.system_file);
  table.Add(
      {"--chat-template"}, "NAME",
      "how it is written down: a built-in format ('winnow chat --help' lists them), or a Jinja "
      "template",
      &flags.chat.writer.built_in);
  table.Add({"--chat-template-file"}, "FILE", "a Jinja template from a file",
            &flags.chat.writer_file);
  table.Switch({"--jinja"}, "by the template in the model's file, as with -sys alone",
               &flags.chat.jinja);
  table.Switch({"--no-jinja"}, "by a built-in format like it", &flags.chat.writer.jinja, false);
  table.Group("Output");
  const auto display = [&](const char* name, const char* help, RunFlags::Display value) {
    table.Add({{name}, "", help, "", {}, false, [&flags, value](std::string_view) {
                 flags.display = value;
                 return Result<void>();
               }});
  };
  display("--no-display-prompt", "print only what is generated", RunFlags::Display::kNone);
  display("--display-prompt",
          "print all of the prompt first; without it, only the last lines of a long one that comes "
          "from a file or a pipe",
          RunFlags::Display::kAll);
  table.Add({{"-co", "--color"},
             "",
             "[on|off|auto]: prompt in yellow; auto, as without a value, on a terminal only",
             "off",
             {"on", "off", "auto"},
             false,
             [&flags](std::string_view value) {
               flags.colour = value.empty() ? "auto" : value;
               return Result<void>();
             }});
  table.Switch({"--json"},
               "one JSON object on stdout instead of the text: what was generated, why "
               "it stopped, timings, memory",
               &flags.json);
  table.Switch({"--no-perf"}, "no statistics at the end", &flags.statistics, false);
  table.Switch({"--perf"}, "statistics at the end, on stderr", &flags.statistics);
  AddSessionFlags(table, flags.session,
                  "where the text read so far is kept. A new FILE is written once the prompt is "
                  "read; one that is there spares reading: a prompt that begins with its text goes "
                  "on from it, another follows after its text. Flags of the cache that are not "
                  "given are as they were");
  table.Switch({"--session-all", "--prompt-cache-all"},
               "FILE also takes what was added and answered, when the answer ends",
               &flags.session.all);
  AddModelFlags(table, flags.model);
  AddKvFlags(table, flags.model.kv);
  AddSamplerFlags(table, flags.sampler);
  AddConstraintFlags(table, flags.constraint);
  AddLogFlags(table, flags.model);
  AddForeignFlags(table, flags.notes);
  table.Add({{"-no-cnv", "--no-conversation"}, "", "", "", {}, true, [](std::string_view) {
               return Result<void>();
             }});
  const auto in_chat = [&](FlagTable::Names names, const char* value) {
    table.Add({std::move(names), value, "", "", {}, true, [](std::string_view) {
                 return Result<void>(Error{
                     "run continues a text as it is; conversations, which have it, are 'winnow "
                     "chat' (-st for a single answer)"});
               }});
  };
  in_chat({"-cnv", "--conversation", "-i", "--interactive", "-mli", "--multiline-input"}, "");
  in_chat({"-st", "--single-turn"}, "");
  table.Add({{"--verbose-prompt"}, "", "", "", {}, true, [&flags](std::string_view) {
               flags.notes.emplace_back(
                   "--verbose-prompt has no effect: 'winnow tokenize' shows the tokens of a text");
               return Result<void>();
             }});
  return table;
}

// The prompt for the tokenizer: as it is, or as the first message of a conversation.
Result<std::vector<MarkedText>> MarkedPrompt(const ChatPrompt& chat, const std::string& prompt,
                                             const Model& model, Log& log) {
  if (!chat.asked_for()) return std::vector<MarkedText>{{prompt, true}};
  WINNOW_ASSIGN(const ChatTemplate writer, MakeTemplate(chat.writer, chat.writer_file, model, log));
  std::string system = chat.system.value_or("");
  if (chat.system_file) {
    WINNOW_ASSIGN(system, ReadTextFile(*chat.system_file, false, log));
    system = WithoutFinalNewline(std::move(system));
  }
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", std::move(system)});
  messages.push_back({"user", prompt});
  WINNOW_ASSIGN(WrittenPrompt written, writer.Write(messages));
  if (!written.warning.empty()) log.Warning(written.warning);
  return std::move(written.text);
}

// The prompt as the session reads it: where its text is not how the prompt begins, the prompt
// follows it.
std::vector<Token> AfterTheSession(const Session& session, std::vector<Token> prompt,
                                   std::span<const Token> without_bos, Log& log) {
  const std::span<const Token> read = session.tokens();
  const bool goes_on =
      prompt.size() >= read.size() && std::equal(read.begin(), read.end(), prompt.begin());
  if (goes_on) return prompt;
  log.Info("session the prompt follows the " + std::to_string(read.size()) + " tokens read before");
  prompt.assign(read.begin(), read.end());
  prompt.insert(prompt.end(), without_bos.begin(), without_bos.end());
  return prompt;
}

// The tokens of what was shown of an answer: all but one that ends it, and of one that a stop
// string ended those before it.
std::vector<Token> ShownTokens(const Model& model, const Generation& generated) {
  std::vector<Token> shown = generated.tokens;
  if (!shown.empty() && model.EndsGeneration(shown.back())) shown.pop_back();
  if (generated.stop_reason != StopReason::kStopString) return shown;
  std::string text = model.Detokenize(shown);
  while (!generated.text.starts_with(text)) {
    shown.pop_back();
    text = model.Detokenize(shown);
  }
  // A stop string can begin inside a token.
  const std::vector<MarkedText> rest = {{generated.text.substr(text.size()), false}};
  const std::vector<Token> tokens = model.Tokenize(rest, /*add_bos=*/false);
  shown.insert(shown.end(), tokens.begin(), tokens.end());
  return shown;
}

// What goes on from the session later goes on after all that was shown, and nothing else. The last
// token of an answer may be in no cache yet, and those of a stop string are in it.
Result<void> ReadWhatWasShown(const Model& model, Session& session, const Generation& generated,
                              Log& log) {
  const std::vector<Token> shown = ShownTokens(model, generated);
  const auto n_prompt = static_cast<size_t>(generated.prompt_tokens);
  const std::span<const Token> held = session.tokens().subspan(n_prompt);
  const auto differ = std::ranges::mismatch(held, shown);
  auto n_same = static_cast<size_t>(differ.in1 - held.begin());
  if (n_same < held.size()) {
    if (session.info().method != "full") {
      log.Warning(
          "the session goes on after the text that stopped the answer, which was not "
          "shown: what a method evicted cannot come back");
      return {};
    }
    session.Truncate(static_cast<int64_t>(n_prompt + n_same));
  }
  for (; n_same < shown.size() && session.room() > 0; ++n_same) {
    WINNOW_TRY(session.Decode(shown[n_same]));
  }
  return {};
}

// Why a text ends in the middle, at the end of the context or of --kv-memory.
std::string ContextWarning(const Session& session) {
  if (static_cast<int64_t>(session.tokens().size()) >= session.capacity()) {
    return "the context of " + std::to_string(session.capacity()) +
           " tokens is full: the text ends here; -c gives it more";
  }
  return "the cache has reached --kv-memory: the text ends here";
}

// The last lines of a document: what an answer follows. Short texts are shown whole.
std::string_view EndOfDocument(std::string_view text) {
  constexpr size_t kShortText = 1200, kShown = 400;  // bytes
  if (text.size() <= kShortText) return text;
  size_t begin = text.size() - kShown;
  // From the beginning of a line, or else of a word.
  const size_t line = text.find('\n', begin);
  const size_t word = text.find(' ', begin);
  const bool has_line = line != std::string_view::npos && text.size() - line > kShown / 4;
  begin = has_line ? line + 1 : word == std::string_view::npos ? begin : word + 1;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  return text.substr(begin);
}

void ShowPrompt(const RunFlags& flags, std::string_view prompt) {
  const bool colour = flags.colour == "on" || (flags.colour == "auto" && UsesColour(Stream::kOut));
  if (colour) Print("\033[33m");
  Print(prompt);
  if (colour) Print("\033[0m");
  Flush();
}

}  // namespace

int Run(Arguments arguments) {
  IgnoreBrokenPipes();
  RunFlags flags;
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (const auto valid = SessionStore::Check(flags.session); !valid) {
    return Misuse("run", valid.error().message);
  }
  const auto store = SessionStore::Open(flags.session, table, flags.model);
  if (!store) return Fail(store.error());
  if (flags.session.all && store->notes() != nullptr &&
      (store->notes()->Find("messages") || store->notes()->Find("document"))) {
    return Fail(Error{store->path() +
                      ": belongs to 'winnow chat', whose messages or document "
                      "--session-all would lose; --session-read-only goes on from it and leaves "
                      "the file as it is"});
  }
  if (const auto valid = Validate(flags.model); !valid) {
    return Misuse("run", valid.error().message);
  }
  if (flags.n_predict < -1) return Misuse("run", "flag -n: expected -1 or more");
  if (flags.prompt.text && flags.prompt.file) return Misuse("run", "give only one of -p and -f");
  if (const auto valid = CheckConstraintFlags(flags.constraint); !valid) {
    return Misuse("run", valid.error().message);
  }
  CommandFiles files;
  files.UsesModel(flags.model);
  files.Reads("-f", flags.prompt.file);
  files.Reads("-sysf", flags.chat.system_file);
  files.Reads("--chat-template-file", flags.chat.writer_file);
  ReadsConstraintFiles(files, flags.constraint);
  if (flags.chat.system && flags.chat.system_file) {
    return Misuse("run", "give only one of -sys and -sysf");
  }
  if (const auto named = CheckTemplateFlags(flags.chat.writer, flags.chat.writer_file); !named) {
    return Misuse("run", named.error().message);
  }
  if (store->saves()) {
    files.Writes("--session", flags.session.file);
  } else {
    files.Reads("--session", flags.session.file);
  }
  if (const auto over = files.Refused("run")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  auto prompt = ReadText(flags.prompt, log);
  if (!prompt) return Fail(prompt.error());
  if (!flags.prompt.text) prompt = WithoutFinalNewline(*std::move(prompt));
  if (flags.escape) {
    if (flags.prompt.text) *prompt = Unescaped(*prompt);
    for (std::string& stop : flags.stop) stop = Unescaped(stop);
  }

  CatchInterrupt();
  auto loaded = LoadModel(flags.model, log);
  if (!loaded) return Fail(loaded.error());
  const Model& model = loaded->model;
  const ResultWarnings warnings(model, log);
  Session& session = loaded->session;

  const auto sampling = SamplingFrom(flags.sampler, model);
  if (!sampling) return Misuse("run", sampling.error().message);
  const auto sampler = model.NewSampler(*sampling);
  if (!sampler) return Misuse("run", sampler.error().message);
  log.Debug("seed   " + std::to_string(sampling->seed));

  const auto constraint = MakeConstraint(flags.constraint, model, log);
  if (!constraint) return Fail(constraint.error());

  if (const auto fits = CheckTextSize(model, session.capacity(), *prompt); !fits) {
    return Fail(fits.error());
  }
  const auto marked = MarkedPrompt(flags.chat, *prompt, model, log);
  if (!marked) return Fail(marked.error());
  std::vector<Token> tokens = model.Tokenize(*marked, flags.add_bos);
  if (store->restored()) {
    tokens = AfterTheSession(session, std::move(tokens), model.Tokenize(*marked, false), log);
  }
  if (const auto fits =
          CheckTrainedContext(flags.model.kv, model, session, static_cast<int64_t>(tokens.size()));
      !fits) {
    return Fail(fits.error());
  }
  if (const auto n = static_cast<int64_t>(tokens.size()); n > session.capacity()) {
    return Fail(Error{"the prompt is " + std::to_string(n) + " tokens, the context holds " +
                      std::to_string(session.capacity()) + "; -c " +
                      std::to_string(n + kTokensOfAnAnswer) +
                      " holds it, and --kv-method streaming --kv-size 1024 --prefill-chunk 512 "
                      "reads a text of any length, of which it keeps the end"});
  }
  ProgressLine progress("prefill");
  GenerateOptions options;
  options.max_tokens = flags.n_predict;
  options.stop = flags.stop;
  options.cancel = InterruptToken();
  options.sampler = *sampler;
  options.constraint = *constraint;
  double prefilled = 0;
  options.on_prefill = [&](double done) {
    prefilled = done;
    progress.Update(done);
  };
  if (!flags.json) {
    options.on_text = [&](std::string_view text) {
      progress.Erase();
      Print(text);
      return Flush();
    };
  }
  Result<void> saved;
  const auto save = [&] { saved = store->Save(session, flags.model, {}); };
  if (store->saves() && !store->restored()) options.on_prompt = save;
  // The prompt appears at once, but not before it is known to fit.
  const auto n_held = static_cast<int64_t>(session.tokens().size());
  const bool fits = session.CheckRoom(static_cast<int64_t>(tokens.size()) - n_held).has_value();
  // A message is not how its answer begins.
  if (fits && !flags.chat.asked_for() && flags.display != RunFlags::Display::kNone && !flags.json) {
    const bool whole = flags.prompt.text || flags.display == RunFlags::Display::kAll;
    const std::string_view shown = whole ? std::string_view(*prompt) : EndOfDocument(*prompt);
    if (shown.size() < prompt->size()) {
      log.Info("prompt its last lines; --display-prompt shows all of it\n");
    }
    ShowPrompt(flags, shown);
  }
  const auto generated = session.Generate(tokens, options);
  progress.Erase();
  if (!generated) return Fail(generated.error());
  const bool read = generated->stop_reason != StopReason::kCancelled || !generated->tokens.empty();
  if (store->saves() && flags.session.all && read) {
    const auto whole = ReadWhatWasShown(model, session, *generated, log);
    if (!whole) return Fail(whole.error());
    save();
  }
  const auto traced = FinishTrace(*loaded);  // with the decisions of what was read just now

  if (flags.json) {
    Print(report::ToJson(StatisticsRecord(*generated, session, model.info().load_ms)));
  }
  Print("\n");
  const int printed = FinishOutput();
  if (generated->stop_reason == StopReason::kContext) {
    log.Warning(ContextWarning(session));
  }
  if (!read) {
    const auto n_read =
        static_cast<int64_t>(prefilled * static_cast<double>(generated->prompt_tokens));
    log.Warning("interrupted after " + std::to_string(n_read) + " of " +
                std::to_string(generated->prompt_tokens) + " tokens of the prompt (" +
                Fixed(100 * prefilled, 0) + " %)");
  }
  if (flags.statistics) {
    log.Info("\n" + StatisticsText(*generated, session, model.info().load_ms));
  }
  if (!saved) return Fail(saved.error());
  if (!traced) return Fail(traced.error());
  if (printed != kDone) return printed;
  return generated->stop_reason == StopReason::kCancelled ? InterruptedCode() : kDone;
}

}  // namespace winnow::apps

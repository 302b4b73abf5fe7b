#include <algorithm>
#include <utility>

#include "base/fixed.h"
#include "commands.h"
#include "console.h"
#include "continued_session.h"
#include "document.h"
#include "interrupt.h"
#include "load.h"
#include "process.h"
#include "result_warnings.h"
#include "run_flags.h"
#include "statistics.h"

namespace winnow::apps {
namespace {

// Prevents --session-all from replacing the messages or document of a 'winnow chat' session.
Result<void> CheckOwner(const RunFlags& flags, const SessionStore& store) {
  if (!flags.session.all || store.notes() == nullptr) return {};
  if (!store.notes()->Find("messages") && !store.notes()->Find("document")) return {};
  return Error{store.path() +
               ": belongs to 'winnow chat', whose messages or document --session-all would lose; "
               "--session-read-only goes on from it and leaves the file as it is"};
}

Result<std::string> ReadPrompt(const RunFlags& flags, Log& log) {
  WINNOW_ASSIGN(std::string prompt, ReadText(flags.prompt, log));
  if (!flags.prompt.text) return WithoutFinalNewline(std::move(prompt));
  return flags.escape ? Unescaped(prompt) : prompt;
}

// The prompt for the tokenizer: unchanged, or rendered as the first message of a conversation.
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

// The tokens of the prompt. Errors: too many for the session, or for --strict.
Result<std::vector<Token>> PromptTokens(const RunFlags& flags, const std::string& prompt,
                                        const LoadedModel& loaded, bool restored, Log& log) {
  const Model& model = loaded.model;
  const Session& session = loaded.session;
  WINNOW_TRY(CheckTextSize(model, session.capacity(), prompt));
  WINNOW_ASSIGN(const std::vector<MarkedText> marked, MarkedPrompt(flags.chat, prompt, model, log));
  std::vector<Token> tokens = model.Tokenize(marked, flags.add_bos);
  if (restored) {
    tokens = PromptAfterSession(model, session, marked, std::move(tokens), log);
  }
  const auto n = static_cast<int64_t>(tokens.size());
  WINNOW_TRY(CheckTrainedContext(flags.model.kv, model, session, n));
  WINNOW_TRY(CheckTokens("the prompt", n, session.capacity()));
  return tokens;
}

// Explains why generation stopped at the end of the context or of --kv-memory.
std::string ContextWarning(const Session& session) {
  if (static_cast<int64_t>(session.tokens().size()) >= session.capacity()) {
    return "the context of " + std::to_string(session.capacity()) +
           " tokens is full: the text ends here; -c gives it more";
  }
  return "the cache has reached --kv-memory: the text ends here";
}

// The last lines of a document, which the answer continues. A short text is shown whole.
std::string_view EndOfDocument(std::string_view text) {
  constexpr size_t kShortText = 1200, kShown = 400;  // bytes
  if (text.size() <= kShortText) return text;
  size_t begin = text.size() - kShown;
  // Start at the beginning of a line, or else of a word.
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

// Shows the prompt at once, if it fits. A chat message is not shown: the answer does not continue
// its text.
void ShowBeginning(const RunFlags& flags, const std::string& prompt, const Session& session,
                   int64_t n_tokens, Log& log) {
  if (flags.chat.asked_for() || flags.display == RunFlags::Display::kNone || flags.json) return;
  if (!session.CheckRoom(n_tokens - static_cast<int64_t>(session.tokens().size()))) return;
  const bool whole = flags.prompt.text || flags.display == RunFlags::Display::kAll;
  const std::string_view shown = whole ? std::string_view(prompt) : EndOfDocument(prompt);
  if (shown.size() < prompt.size()) {
    log.Info("prompt its last lines; --display-prompt shows all of it\n");
  }
  ShowPrompt(flags, shown);
}

// Warning when the prompt was not read to its end. done: share that was read, 0..1.
std::string InterruptedWarning(double done, int64_t n_tokens) {
  const auto n_read = static_cast<int64_t>(done * static_cast<double>(n_tokens));
  return "interrupted after " + std::to_string(n_read) + " of " + std::to_string(n_tokens) +
         " tokens of the prompt (" + Fixed(100 * done, 0) + " %)";
}

}  // namespace

int Run(Arguments arguments) {
  IgnoreBrokenPipes();
  RunFlags flags;
  FlagTable table = MakeRunTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (const auto valid = SessionStore::Check(flags.session); !valid) {
    return Misuse("run", valid.error().message);
  }
  const auto store = SessionStore::Open(flags.session, table, flags.model);
  if (!store) return Fail(store.error());
  if (const auto own = CheckOwner(flags, *store); !own) return Fail(own.error());
  if (const auto valid = CheckRunFlags(flags); !valid) {
    return Misuse("run", valid.error().message);
  }
  if (const auto over = RunFiles(flags, *store).Refused("run")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  const auto prompt = ReadPrompt(flags, log);
  if (!prompt) return Fail(prompt.error());

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
  if (!flags.chat.asked_for() && !store->restored() && model.info().has_chat_template) {
    log.Info(
        "text   is continued as it is; --jinja makes it a message in the model's chat template");
  }
  const auto constraint = MakeConstraint(flags.constraint, model, log);
  if (!constraint) return Fail(constraint.error());
  const auto tokens = PromptTokens(flags, *prompt, *loaded, store->restored(), log);
  if (!tokens) return Fail(tokens.error());

  ProgressLine progress("prefill");
  double prefilled = 0;
  Result<void> saved;
  const auto save = [&] { saved = store->Save(session, flags.model, {}); };
  GenerateOptions options;
  options.max_tokens = flags.n_predict;
  for (const std::string& stop : flags.stop) {
    options.stop.push_back(flags.escape ? Unescaped(stop) : stop);
  }
  options.cancel = InterruptToken();
  options.sampler = *sampler;
  options.constraint = *constraint;
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
  if (store->saves() && !store->restored()) options.on_prompt = save;
  ShowBeginning(flags, *prompt, session, static_cast<int64_t>(tokens->size()), log);
  const auto generated = session.Generate(*tokens, options);
  progress.Erase();
  if (!generated) return Fail(generated.error());
  const bool read = generated->stop_reason != StopReason::kCancelled || !generated->tokens.empty();
  if (store->saves() && flags.session.all && read) {
    const auto whole = SyncSessionWithOutput(model, session, *generated, log);
    if (!whole) return Fail(whole.error());
    save();
  }
  const auto traced = FinishTrace(*loaded);  // includes the plans of the tokens read just now

  if (flags.json) {
    Print(report::ToJson(StatisticsRecord(*generated, session, model.info().load_ms)));
  }
  Print("\n");
  const int printed = FinishOutput();
  if (generated->stop_reason == StopReason::kContext) log.Warning(ContextWarning(session));
  if (!read) log.Warning(InterruptedWarning(prefilled, generated->prompt_tokens));
  if (flags.statistics) {
    log.Info("\n" + StatisticsText(*generated, session, model.info().load_ms));
  }
  if (!saved) return Fail(saved.error());
  if (!traced) return Fail(traced.error());
  if (printed != kDone) return printed;
  return generated->stop_reason == StopReason::kCancelled ? InterruptedCode() : kDone;
}

}  // namespace winnow::apps

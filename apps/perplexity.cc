#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/fixed.h"
#include "base/machine.h"
#include "command_files.h"
#include "commands.h"
#include "interrupt.h"
#include "load.h"
#include "options.h"
#include "report/record.h"
#include "result_warnings.h"
#include "stream.h"
#include "text_input.h"
#include "window_scores.h"

namespace winnow::apps {
namespace {

constexpr int64_t kDefaultWindow = 512;

struct PerplexityFlags {
  ModelFlags model;
  TextSource text;
  int64_t chunks = -1;
  std::optional<std::string> save_base;  // --kl-base
  std::optional<std::string> compare;    // --kl
  bool compare_with_base = false;        // llama-perplexity's --kl-divergence
  std::optional<std::string> save_logits;
  StreamFlags stream;
  bool json = false;
  std::vector<std::string> notes;
};

FlagTable MakeTable(PerplexityFlags& flags) {
  FlagTable table(
      "perplexity", "[-m FILE] -f FILE [flags]",
      "Scores a text as llama-perplexity does: it is cut into windows of -c tokens, each begins "
      "with the model's begin-of-text token if it wants one, and the tokens of the second half of "
      "each are scored. Prints the running estimate, then the final one. Under a compression "
      "method "
      "the first half of a window is the prompt, and the second half is decoded token by token.");
  table.Group("Text");
  table.Add({"-f", "--file"}, "FILE",
            "the text, '-' for standard input; a final newline is dropped", &flags.text.file);
  table.Add({"-p", "--prompt"}, "TEXT", "the text itself", &flags.text.text);
  AddRawTextFlag(table, flags.text);
  table.Add({"--chunks"}, "N", "windows to score at most; -1: all", &flags.chunks);
  AddStreamFlags(table, flags.stream);
  table.Group("Comparing two runs");
  table.Add({"--kl-base", "--kl-divergence-base", "--save-all-logits"}, "FILE",
            "write the log-probabilities of all scored tokens (the format of llama-perplexity)",
            &flags.save_base);
  table.Add({"--kl"}, "FILE",
            "compare with such a file, whose text is used: KL divergence, change of probabilities, "
            "same most likely token",
            &flags.compare);
  table.Switch({"--kl-divergence"}, "compare with the file of --kl-base instead of writing it",
               &flags.compare_with_base);
  table.Group("Output");
  table.Add({"--save-logits"}, "FILE",
            "write a safetensors file: 'tokens' [n] i32 as they were fed, 'logits' [n, vocabulary] "
            "f32 of all tokens",
            &flags.save_logits);
  table.Switch({"--json"}, "one JSON object on stdout instead of the running estimate",
               &flags.json);
  flags.model.context = kDefaultWindow;
  AddModelFlags(table, flags.model, "tokens of a window; 0: what the model was trained for");
  AddKvFlags(table, flags.model.kv);
  AddLogFlags(table, flags.model);
  table.Add(
      {{"--ppl-stride"}, "N", "", "", {}, true, [](std::string_view) {
         return Result<void>(Error{
             "windows that overlap are 'winnow eval perplexity --protocol sliding --stride N'"});
       }});
  AddForeignFlags(table, flags.notes);
  return table;
}

std::optional<std::string> Contradiction(PerplexityFlags& flags) {
  if (flags.stream.enabled) {
    if (flags.compare || flags.save_base || flags.save_logits || flags.chunks != -1) {
      return "--stream scores every token of the whole text: leave out --chunks, --kl, --kl-base "
             "and --save-logits";
    }
    if (flags.model.kv.ratio > 0) return "--stream has no prompt to take a --kv-ratio of";
    if (flags.model.kv.quality > 0) return "--stream has no prompt to search a --kv-quality for";
  }
  if (flags.compare_with_base) {
    if (!flags.save_base) return "--kl-divergence needs the file: --kl-base FILE";
    if (flags.compare) return "give only one of --kl and --kl-divergence";
    flags.compare = std::exchange(flags.save_base, std::nullopt);
  }
  if (flags.compare && flags.save_base) return "give only one of --kl and --kl-base";
  if (flags.text.text && flags.text.file) return "give only one of -p and -f";
  if (flags.compare && (flags.text.text || flags.text.file)) {
    return "--kl takes the text from its file: leave out -f and -p";
  }
  if (flags.chunks == 0 || flags.chunks < -1) return "flag --chunks: expected -1 or at least 1";
  return std::nullopt;
}

// The tokens to score and the window, from the text or from the file to compare with.
struct Text {
  std::vector<Token> tokens;
  int64_t window = 0;
};

Result<Text> GetText(const PerplexityFlags& flags, const LogitsFiles& outputs, const Model& model,
                     Log& log) {
  if (outputs.base_reader) {
    const eval::LogProbsHeader& header = outputs.base_reader->header();
    if (header.vocabulary != model.vocabulary_size()) {
      return Error{*flags.compare + ": made with a vocabulary of " +
                   std::to_string(header.vocabulary) + " tokens, this model has " +
                   std::to_string(model.vocabulary_size())};
    }
    return Text{header.tokens, header.window};
  }
  WINNOW_ASSIGN(std::string text, ReadText(flags.text, log));
  if (!flags.text.text) text = WithoutFinalNewline(std::move(text));
  return Text{model.Tokenize(text, {.parse_special = true}), flags.model.context};
}

std::string PlusMinus(const MeanEstimate& estimate, double factor = 1,
                      const std::string& unit = "") {
  return Fixed(factor * estimate.mean(), 6) + " +/- " +
         Fixed(factor * estimate.standard_error(), 6) + unit;
}

constexpr std::pair<const char*, double> kPercentiles[] = {
    {"maximum", 1},  {"99.9 %", 0.999}, {"99 %", 0.99}, {"95 %", 0.95}, {"90 %", 0.9},
    {"median", 0.5}, {"10 %", 0.1},     {"5 %", 0.05},  {"1 %", 0.01},  {"minimum", 0}};

std::string ComparisonText(const eval::KlDivergence& kl) {
  const auto line = [](std::string name, const std::string& value) {
    name.resize(22, ' ');
    return name + value + "\n";
  };
  const double ratio = std::exp(kl.log_ratio().mean());
  std::string text = "\n" + line("PPL of the base", Fixed(std::exp(kl.nll_base().mean()), 6));
  text += line("PPL ratio",
               Fixed(ratio, 6) + " +/- " + Fixed(ratio * kl.log_ratio().standard_error(), 6));
  text += line("mean KLD", PlusMinus(kl.kld()));
  const std::vector<float> sorted = kl.SortedKlds();
  for (const auto& [name, share] : kPercentiles) {
    text += line(std::string("KLD ") + name, Fixed(Percentile(sorted, share), 6));
  }
  text += line("mean change of p", PlusMinus(kl.p_difference(), 100, " %"));
  text += line("RMS change of p", Fixed(100 * kl.rms_p_difference(), 3) + " %");
  text += line("same top token", Fixed(100 * kl.same_top().mean(), 3) + " +/- " +
                                     Fixed(100 * kl.same_top().standard_error(), 3) + " %");
  return text;
}

report::Record ComparisonRecord(const eval::KlDivergence& kl) {
  report::Record percentiles;
  const std::vector<float> sorted = kl.SortedKlds();
  for (const double percent : {0.0, 1.0, 5.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0}) {
    percentiles.Add(Fixed(percent, percent == 99.9 ? 1 : 0), Percentile(sorted, percent / 100));
  }
  const double ratio = std::exp(kl.log_ratio().mean());
  return {{"base_perplexity", std::exp(kl.nll_base().mean())},
          {"perplexity_ratio", ratio},
          {"perplexity_ratio_error", ratio * kl.log_ratio().standard_error()},
          {"mean_kld", kl.kld().mean()},
          {"mean_kld_error", kl.kld().standard_error()},
          {"kld_percentiles", percentiles},
          {"mean_p_difference", kl.p_difference().mean()},
          {"rms_p_difference", kl.rms_p_difference()},
          {"same_top_rate", kl.same_top().mean()},
          {"clipped_tokens", kl.n_clipped()}};
}

Result<void> OpenOutputs(const PerplexityFlags& flags, const Text& text,
                         const eval::TextWindows& windows, int64_t vocabulary,
                         LogitsFiles& outputs) {
  if (flags.save_base) {
    eval::LogProbsHeader header{.window = windows.window,
                                .vocabulary = vocabulary,
                                .n_windows = windows.n_windows,
                                .tokens = text.tokens};
    header.tokens.resize(windows.tokens.size());
    WINNOW_ASSIGN(outputs.base_writer, eval::LogProbsWriter::Create(*flags.save_base, header));
  }
  if (flags.save_logits) {
    using report::SafetensorsWriter;
    const int64_t n = static_cast<int64_t>(windows.tokens.size());
    WINNOW_ASSIGN(
        outputs.logits_writer,
        SafetensorsWriter::Create(*flags.save_logits,
                                  {{"tokens", SafetensorsWriter::Type::kI32, {n}},
                                   {"logits", SafetensorsWriter::Type::kF32, {n, vocabulary}}}));
    WINNOW_TRY(outputs.logits_writer->Write(windows.tokens));
  }
  return {};
}

// BOS, if the model wants one before a text.
std::optional<Token> BeginningOfText(const Model& model) {
  const std::vector<Token> tokens = model.Tokenize(std::span<const MarkedText>());
  return tokens.empty() ? std::nullopt : std::optional(tokens[0]);
}

// Opens the file to compare with, whose windows are used. Errors: it cannot be read; -c contradicts
// it.
Result<void> OpenBase(PerplexityFlags& flags, bool window_given, LogitsFiles& outputs) {
  WINNOW_ASSIGN(eval::LogProbsReader reader, eval::LogProbsReader::Open(*flags.compare));
  const int64_t window = reader.header().window;
  if (window_given && flags.model.context != window) {
    return Error{*flags.compare + ": made with windows of " + std::to_string(window) +
                 " tokens, -c says " + std::to_string(flags.model.context)};
  }
  flags.model.context = window;
  outputs.base_reader = std::move(reader);
  return {};
}

Result<eval::TextWindows> CutText(const PerplexityFlags& flags, const Text& text,
                                  const LoadedModel& loaded, Log& log) {
  const int64_t window = text.window == 0 ? loaded.session.capacity() : text.window;
  auto windows = eval::CutWindows(text.tokens, window, flags.chunks, BeginningOfText(loaded.model));
  if (!windows && text.tokens.size() <= 1) {
    return Error{windows.error().message + ": give one with -f FILE, -p TEXT or through a pipe"};
  }
  if (!windows) return windows.error();
  if (windows->window < window) {
    log.Warning("the text has only " + std::to_string(windows->window) +
                " tokens: it is scored as one window of that length, not of " +
                std::to_string(window));
  }
  WINNOW_TRY(CheckTrainedContext(flags.model.kv, loaded.model, loaded.session, windows->window));
  log.Info("text   " + std::to_string(text.tokens.size()) + " tokens, " +
           std::to_string(windows->n_windows) + " windows of " + std::to_string(windows->window));
  return windows;
}

struct Scored {
  int64_t n_windows = 0;
  bool stopped = false;
  double seconds = 0;
};

// Scores the windows in order and prints the estimate so far, unless the output is JSON.
Result<Scored> ScoreAll(const PerplexityFlags& flags, const eval::TextWindows& windows,
                        WindowScores& scores) {
  const std::atomic<bool>& interrupted = CatchInterrupt();
  ProgressLine progress("scoring");
  const auto start = std::chrono::steady_clock::now();
  scores.progress = [&](double done) {
    progress.Update(done);
    return !interrupted.load();
  };
  Scored scored;
  while (scored.n_windows < windows.n_windows) {
    const auto finished = scores.Score(scored.n_windows);
    if (!finished || !flags.json) progress.Erase();
    if (!finished) return finished.error();
    if (scored.stopped = !*finished; scored.stopped) break;
    ++scored.n_windows;
    if (flags.json) continue;
    Print("[" + std::to_string(scored.n_windows) + "]" +
          Fixed(winnow::Perplexity(scores.nll()), 4) + ",");
    Flush();
  }
  progress.Erase();
  scores.progress = {};
  scored.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return scored;
}

void PrintScores(const PerplexityFlags& flags, const Session& session, int64_t window,
                 const Scored& scored, const MeanEstimate& nll, const LogitsFiles& outputs) {
  const double perplexity = winnow::Perplexity(nll), error = PerplexityError(nll);
  if (!flags.json) {
    Print((scored.n_windows > 0 ? "\n" : "") +
          std::string(scored.stopped ? "Estimate so far" : "Final estimate") +
          ": PPL = " + Fixed(perplexity, 4) + " +/- " + Fixed(error, 5) + "\n");
    if (outputs.base_reader) Print(ComparisonText(outputs.kl));
    return;
  }
  report::Record record = {{"perplexity", perplexity},
                           {"standard_error", error},
                           {"tokens_scored", nll.count()},
                           {"windows", scored.n_windows},
                           {"window", window},
                           {"finished", !scored.stopped},
                           {"seconds", scored.seconds},
                           {"peak_rss_bytes", PeakResidentBytes()}};
  record.Add("method", session.info().method);
  if (outputs.base_reader) record.Add("comparison", ComparisonRecord(outputs.kl));
  Print(report::ToJson(record) + "\n");
}

// Logs warnings about the figures, and the time they took.
void LogScores(const Scored& scored, int64_t n_tokens, const MeanEstimate& nll, int64_t vocabulary,
               const LogitsFiles& outputs, Log& log) {
  if (outputs.kl.n_clipped() > 0) {
    log.Warning(
        std::to_string(outputs.kl.n_clipped()) + " of " + std::to_string(nll.count()) +
        " tokens are less likely than the base file tells (e^-16 of the likeliest): the PPL of "
        "the base is higher than shown, and the ratio takes them as equally likely");
  }
  if (const auto warning = PerplexityWarning(winnow::Perplexity(nll), vocabulary)) {
    log.Warning(*warning);
  }
  log.Info("\n" + std::to_string(n_tokens) + " tokens in " +
           (scored.seconds < 60 ? Fixed(scored.seconds, 1) + " s" : HumanDuration(scored.seconds)) +
           ", " + Fixed(static_cast<double>(n_tokens) / scored.seconds, 1) +
           " tokens/s, peak memory " + HumanBytes(PeakResidentBytes()));
}

}  // namespace

int Perplexity(Arguments arguments) {
  PerplexityFlags flags;
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (const auto valid = Validate(flags.model); !valid) {
    return Misuse("perplexity", valid.error().message);
  }
  if (const auto wrong = Contradiction(flags)) return Misuse("perplexity", *wrong);

  CommandFiles files;
  files.UsesModel(flags.model);
  files.Reads("-f", flags.text.file);
  files.Reads("--kl", flags.compare);
  files.Writes("--kl-base", flags.save_base);
  files.Writes("--save-logits", flags.save_logits);
  if (const auto over = files.Refused("perplexity")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  CatchInterrupt();
  LogitsFiles outputs;
  if (flags.compare) {
    if (const auto opened = OpenBase(flags, table.Given("-c"), outputs); !opened) {
      return Fail(opened.error());
    }
  }
  if (flags.stream.enabled && !table.Given("-c")) flags.model.context = 0;
  auto loaded = LoadModel(flags.model, log);
  if (!loaded) return Fail(loaded.error());
  const Model& model = loaded->model;
  const ResultWarnings warnings(model, log);
  Session& session = loaded->session;
  const auto text = GetText(flags, outputs, model, log);
  if (!text) return Fail(text.error());
  if (!session.info().scores_prompts && (flags.save_logits || flags.model.kv.prefill_chunk > 1)) {
    return Fail(Error{session.info().method +
                      " computes only some tokens of a prompt: no logits of all of them"});
  }
  if (flags.stream.enabled) {
    return StreamPerplexity({*loaded, text->tokens, flags.stream, flags.model.kv, flags.json}, log);
  }
  const auto windows = CutText(flags, *text, *loaded, log);
  if (!windows) return Fail(windows.error());
  const int64_t vocabulary = model.vocabulary_size();
  if (const auto opened = OpenOutputs(flags, *text, *windows, vocabulary, outputs); !opened) {
    return Fail(opened.error());
  }

  WindowScores scores(session, *windows, outputs);
  // With --prefill-chunk the whole window is read as a prompt: a token attends to its own chunk and
  // to the entries kept of earlier ones.
  if (flags.model.kv.prefill_chunk == 0) scores.n_prompt = windows->first_scored();
  const auto scored = ScoreAll(flags, *windows, scores);
  if (!scored) return Fail(scored.error());
  auto files_written = FinishTrace(*loaded);
  if (scored->stopped) {
    log.Warning("interrupted after " + std::to_string(scored->n_windows) + " of " +
                std::to_string(windows->n_windows) + " windows" +
                (outputs.writes() ? "; files of all of them were not written" : ""));
    if (scores.nll().count() == 0) return InterruptedCode();
  } else if (auto finished = outputs.Finish(); !finished) {
    files_written = std::move(finished);
  }
  PrintScores(flags, session, windows->window, *scored, scores.nll(), outputs);
  LogScores(*scored, scored->n_windows * windows->window, scores.nll(), vocabulary, outputs, log);
  const int printed = FinishOutput();
  if (!files_written) return Fail(files_written.error());
  return printed == kDone && scored->stopped ? InterruptedCode() : printed;
}

}  // namespace winnow::apps

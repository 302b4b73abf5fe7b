#include "eval/run/perplexity.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/machine.h"
#include "command_files.h"
#include "commands.h"
#include "eval/metrics/kl_divergence.h"
#include "eval/metrics/log_probs_file.h"
#include "interrupt.h"
#include "options.h"
#include "report/record.h"
#include "report/safetensors.h"
#include "result_warnings.h"
#include "stream.h"
#include "text_input.h"

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

// What becomes of the logits besides the estimate.
struct Consumers {
  std::optional<eval::LogProbsWriter> base_writer;
  std::optional<eval::LogProbsReader> base_reader;
  std::optional<report::SafetensorsWriter> logits_writer;
  eval::KlDivergence kl;

  Result<void> Take(const eval::LogitsBlock& block, int64_t first_scored_row) {
    if (logits_writer) WINNOW_TRY(logits_writer->Write(block.logits));
    for (int64_t row = 0; row < block.n_rows(); ++row) {
      const int32_t next = block.next[static_cast<size_t>(row)];
      if (next < 0 || block.first_row + row < first_scored_row) continue;
      if (base_writer) WINNOW_TRY(base_writer->Write(block.Row(row)));
      if (base_reader) {
        log_probs_.resize(static_cast<size_t>(base_reader->header().vocabulary));
        WINNOW_TRY(base_reader->Read(log_probs_));
        kl.Add(eval::RowComparison::Of(block.Row(row), log_probs_, next));
      }
    }
    return {};
  }
  bool writes() const { return base_writer || logits_writer; }
  Result<void> Finish() {
    if (base_writer) WINNOW_TRY(base_writer->Finish());
    if (logits_writer) WINNOW_TRY(logits_writer->Finish());
    return {};
  }

 private:
  std::vector<float> log_probs_;
};

// The tokens to score and the window: of the text, or of the file to compare with.
struct Text {
  std::vector<runtime::TokenId> tokens;
  int64_t window = 0;
};

Result<Text> GetText(const PerplexityFlags& flags, const Consumers& consumers,
                     const tokenizer::Tokenizer& tokenizer, Log& log) {
  if (consumers.base_reader) {
    const eval::LogProbsHeader& header = consumers.base_reader->header();
    if (header.vocabulary != tokenizer.vocabulary_size()) {
      return Error{*flags.compare + ": made with a vocabulary of " +
                   std::to_string(header.vocabulary) + " tokens, this model has " +
                   std::to_string(tokenizer.vocabulary_size())};
    }
    return Text{header.tokens, header.window};
  }
  WINNOW_ASSIGN(std::string text, ReadText(flags.text, log));
  if (!flags.text.text) text = WithoutFinalNewline(std::move(text));
  return Text{tokenizer.Encode(text), flags.model.context};
}

std::string PlusMinus(const eval::MeanEstimate& estimate, double factor = 1,
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
    text += line(std::string("KLD ") + name, Fixed(eval::Percentile(sorted, share), 6));
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
    percentiles.Add(Fixed(percent, percent == 99.9 ? 1 : 0),
                    eval::Percentile(sorted, percent / 100));
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
                         const eval::Windows& windows, int64_t vocabulary, Consumers& consumers) {
  if (flags.save_base) {
    eval::LogProbsHeader header{.window = windows.window,
                                .vocabulary = vocabulary,
                                .n_windows = windows.n_windows,
                                .tokens = text.tokens};
    header.tokens.resize(windows.tokens.size());
    WINNOW_ASSIGN(consumers.base_writer, eval::LogProbsWriter::Create(*flags.save_base, header));
  }
  if (flags.save_logits) {
    using report::SafetensorsWriter;
    const int64_t n = static_cast<int64_t>(windows.tokens.size());
    WINNOW_ASSIGN(
        consumers.logits_writer,
        SafetensorsWriter::Create(*flags.save_logits,
                                  {{"tokens", SafetensorsWriter::Type::kI32, {n}},
                                   {"logits", SafetensorsWriter::Type::kF32, {n, vocabulary}}}));
    WINNOW_TRY(consumers.logits_writer->Write(windows.tokens));
  }
  return {};
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
  const std::atomic<bool>& interrupted = CatchInterrupt();
  Consumers consumers;
  if (flags.compare) {
    auto reader = eval::LogProbsReader::Open(*flags.compare);
    if (!reader) return Fail(reader.error());
    const int64_t window = reader->header().window;
    if (table.Given("-c") && flags.model.context != window) {
      return Fail(Error{*flags.compare + ": made with windows of " + std::to_string(window) +
                        " tokens, -c says " + std::to_string(flags.model.context)});
    }
    flags.model.context = window;
    consumers.base_reader = std::move(reader).value();
  }
  if (flags.stream.enabled && !table.Given("-c")) flags.model.context = 0;
  auto loaded = Load(flags.model, log);
  if (!loaded) return Fail(loaded.error());
  const ResultWarnings warnings(*loaded->engine, log);
  runtime::Session& session = *loaded->session;
  const tokenizer::Tokenizer& tokenizer = loaded->engine->tokenizer();
  auto text = GetText(flags, consumers, tokenizer, log);
  if (!text) return Fail(text.error());
  const compression::MethodPtr& method = session.compression().method;
  if (method && method->traits().drops_hidden_states &&
      (flags.save_logits || flags.model.kv.prefill_chunk > 1)) {
    return Fail(Error{MethodName(session) +
                      " computes only some tokens of a prompt: no logits of all of them"});
  }
  if (flags.stream.enabled) {
    return StreamPerplexity({*loaded, text->tokens, flags.stream, flags.model.kv, flags.json}, log);
  }
  if (text->window == 0) text->window = session.capacity();
  const auto windows = eval::CutWindows(text->tokens, text->window, flags.chunks, tokenizer);
  if (!windows) return Fail(windows.error());
  if (windows->window < text->window) {
    log.Warning("the text has only " + std::to_string(windows->window) +
                " tokens: it is scored as one window of that length, not of " +
                std::to_string(text->window));
  }
  if (const auto fits = CheckTrainedContext(flags.model.kv, session, windows->window); !fits) {
    return Fail(fits.error());
  }
  const int64_t vocabulary = loaded->engine->model().hyperparameters().vocabulary;
  if (const auto opened = OpenOutputs(flags, *text, *windows, vocabulary, consumers); !opened) {
    return Fail(opened.error());
  }
  log.Info("text   " + std::to_string(text->tokens.size()) + " tokens, " +
           std::to_string(windows->n_windows) + " windows of " + std::to_string(windows->window));

  ProgressLine progress("scoring");
  const auto start = std::chrono::steady_clock::now();
  eval::PerplexityOptions options;
  options.all_rows = consumers.logits_writer.has_value();
  options.on_block = [&](const eval::LogitsBlock& block) {
    return consumers.Take(block, windows->first_row());
  };
  options.progress = [&](double done) {
    progress.Update(done);
    return !interrupted.load();
  };
  int64_t n_done = 0;
  options.on_window = [&](int64_t done, double perplexity) {
    n_done = done;
    if (flags.json) return;
    progress.Erase();
    Print("[" + std::to_string(done) + "]" + Fixed(perplexity, 4) + ",");
    Flush();
  };
  const auto estimate = eval::MeasurePerplexity(session, *windows, options);
  progress.Erase();
  if (!estimate) return Fail(estimate.error());
  auto files_written = FinishTrace(*loaded);
  if (estimate->stopped) {
    log.Warning("interrupted after " + std::to_string(n_done) + " of " +
                std::to_string(windows->n_windows) + " windows" +
                (consumers.writes() ? "; files of all of them were not written" : ""));
    if (estimate->nll.count() == 0) return InterruptedCode();
  } else if (auto finished = consumers.Finish(); !finished) {
    files_written = std::move(finished);
  }

  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (flags.json) {
    report::Record record = {{"perplexity", estimate->perplexity()},
                             {"standard_error", estimate->standard_error()},
                             {"tokens_scored", estimate->nll.count()},
                             {"windows", n_done},
                             {"window", windows->window},
                             {"finished", !estimate->stopped},
                             {"seconds", seconds},
                             {"peak_rss_bytes", PeakResidentBytes()}};
    record.Add("method", MethodName(session));
    if (consumers.base_reader) record.Add("comparison", ComparisonRecord(consumers.kl));
    Print(report::ToJson(record) + "\n");
  } else {
    Print((n_done > 0 ? "\n" : "") +
          std::string(estimate->stopped ? "Estimate so far" : "Final estimate") + ": PPL = " +
          Fixed(estimate->perplexity(), 4) + " +/- " + Fixed(estimate->standard_error(), 5) + "\n");
    if (consumers.base_reader) Print(ComparisonText(consumers.kl));
  }
  const int64_t n_tokens = n_done * windows->window;
  if (consumers.kl.n_clipped() > 0) {
    log.Warning(
        std::to_string(consumers.kl.n_clipped()) + " of " + std::to_string(estimate->nll.count()) +
        " tokens are less likely than the base file tells (e^-16 of the likeliest): the PPL of "
        "the base is higher than shown, and the ratio takes them as equally likely");
  }
  if (const auto warning = GuessingWarning(estimate->perplexity(), vocabulary)) {
    log.Warning(*warning);
  }
  log.Info("\n" + std::to_string(n_tokens) + " tokens in " +
           (seconds < 60 ? Fixed(seconds, 1) + " s" : HumanDuration(seconds)) + ", " +
           Fixed(static_cast<double>(n_tokens) / seconds, 1) + " tokens/s, peak memory " +
           HumanBytes(PeakResidentBytes()));
  const int printed = FinishOutput();
  if (!files_written) return Fail(files_written.error());
  return printed == kDone && estimate->stopped ? InterruptedCode() : printed;
}

}  // namespace winnow::apps

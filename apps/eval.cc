#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>

#include "base/nearest.h"
#include "build.h"
#include "command_files.h"
#include "commands.h"
#include "document.h"
#include "eval/report/fastchat.h"
#include "eval/report/page.h"
#include "eval/report/summary.h"
#include "eval/run/identity.h"
#include "eval/run/prompt.h"
#include "eval/run/results_file.h"
#include "eval/run/runner.h"
#include "eval/tasks/task.h"
#include "eval_flags.h"
#include "gguf/file_hash.h"
#include "interrupt.h"
#include "load.h"
#include "options.h"
#include "report/record.h"
#include "result_warnings.h"
#include "stream.h"
#include "table.h"
#include "winnow/version.h"

namespace winnow::apps {
namespace {

std::string UnknownTask(const std::string& name) {
  std::vector<std::string_view> names;
  for (const eval::Task& task : eval::Tasks()) names.push_back(task.name);
  const std::string_view nearest = NearestWord(name, names);
  return "no task '" + name + "'" +
         (nearest.empty() ? "; 'winnow eval --list' lists them"
                          : "; did you mean " + std::string(nearest) + "?");
}

constexpr size_t kMaxGroupRows = 24;  // rows of the second table; --json and --report have all

int List(const eval::Task* task) {
  if (task == nullptr) {
    std::vector<report::Record> rows;
    for (const eval::Task& each : eval::Tasks()) {
      rows.push_back({{"task", each.name}, {"what it measures", each.summary}});
    }
    PrintTable(rows, 1);
    return FinishOutput();
  }
  std::string columns;
  for (const eval::Column& column : task->columns) {
    columns += (columns.empty() ? "" : ", ") + column.title;
  }
  Print(std::string(task->name) + ": " + std::string(task->summary) + "\n\n" + "data     " +
        std::string(task->data) + "\n" + "flags   " + FlagsFrom(*task) + "\n" + "columns  " +
        columns + "\n" + "repeats  " + std::string(task->repeats) + "\n");
  return FinishOutput();
}

Result<std::optional<tokenizer::ChatTemplate>> TemplateFrom(const EvalFlags& flags,
                                                            const runtime::Engine& engine,
                                                            Log& log) {
  WINNOW_ASSIGN(const auto source, engine.file().String("tokenizer.chat_template"));
  const bool has_none = flags.chat_template.empty() && source.value_or("").empty();
  if (flags.raw || has_none) return std::optional<tokenizer::ChatTemplate>();
  WINNOW_ASSIGN(const auto found, ChooseTemplate(flags.chat_template, engine.file(), log));
  return std::optional(found);
}

report::Record AboutRecord(runtime::Engine& engine, const std::string& model_hash,
                           const EvalFlags& flags) {
  report::Record about = {
      {"model",
       report::Record{{"file", std::filesystem::path(flags.model.model).filename().string()},
                      {"description", DescribeEngine(engine)},
                      {"bytes", engine.file().file_bytes()},
                      {"hash", model_hash}}},
      {"machine", eval::MachineRecord(std::string(engine.backend().target()))},
      {"threads", engine.pool().n_threads()},
      {"winnow", BuildVersion()}};
  return about;
}

void PrintTables(const eval::EvalResults& results) {
  PrintTable(eval::SummaryTable(results, HumanBytes), 2);
  const std::vector<std::string> notes = eval::ListNotes(results);
  if (!notes.empty()) Print("\n");
  for (const std::string& note : notes) Print(note + "\n");
  const std::vector<report::Record> groups = eval::GroupRows(results, true);
  if (groups.empty() || groups.size() > kMaxGroupRows) return;
  Print("\n" + eval::LeadingTitle(results) + " by part:\n\n");
  PrintTable(groups, 1);
}

bool HasAnyResult(const eval::EvalResults& results) {
  return std::any_of(results.samples.begin(), results.samples.end(), [](const auto& sample) {
    return std::any_of(sample.results.begin(), sample.results.end(),
                       [](const auto& result) { return result && result->problem.empty(); });
  });
}

// Declares the files that the task's options name.
void AddTaskFiles(const eval::Task& task, const EvalFlags& flags, eval::FileUse use,
                  CommandFiles& files) {
  for (const eval::Option& option : task.options) {
    const std::string* path = eval::FindValue(flags.given, option.name);
    if (path == nullptr || path->empty() || option.file_use != use) continue;
    if (use == eval::FileUse::kReads) files.Reads(FlagFrom(option.name), *path);
    if (use == eval::FileUse::kWritesFolder) {
      files.Writes(FlagFrom(option.name), *path, Output::kFolder);
    }
  }
}

class EvalRun {
 public:
  EvalRun(const eval::Task& task, const eval::TaskRun& run, EvalFlags& flags, ConsoleLog& log)
      : task_(task), run_(run), flags_(flags), log_(log) {}

  Result<int> Run(const std::vector<eval::Variant>& variants) {
    const std::atomic<bool>& interrupted = CatchInterrupt();
    std::optional<eval::ResultsFile> file;
    if (flags_.results) {
      WINNOW_ASSIGN(file, eval::ResultsFile::Open(*flags_.results));
      if (file->n_skipped_lines() > 0) {
        log_.Warning(*flags_.results + ": " + std::to_string(file->n_skipped_lines()) +
                     " lines are not results and were skipped");
      }
    }
    WINNOW_ASSIGN(auto loaded, Load(flags_.model, log_));
    runtime::Engine& engine = *loaded.engine;
    const ResultWarnings warnings(engine, log_);
    const int64_t context = loaded.session->capacity();
    loaded.session.reset();
    const std::string hash = gguf::ContentHash(engine.file());
    WINNOW_ASSIGN(const auto chat_template, TemplateFrom(flags_, engine, log_));
    const eval::PromptWriter prompts(engine.tokenizer(), chat_template, flags_.system, context);
    const eval::TaskContext task_context = {engine.tokenizer(), prompts, context, log_, FlagFrom};
    WINNOW_ASSIGN(const std::vector<eval::Sample> samples, run_.samples(task_context));
    log_.Info("eval   " + std::string(task_.name) + ": " + std::to_string(samples.size()) +
              " samples under " + std::to_string(variants.size()) + " variants");

    if (run_.reads_token_by_token) WarnAboutIdleMethods(variants);

    ProgressLine progress(std::string(task_.name));
    eval::EvalOptions options;
    options.results = file ? &*file : nullptr;
    options.about = AboutRecord(engine, hash, flags_);
    options.version = WINNOW_VERSION;
    options.build = BuildVersion();
    options.model_hash = hash;
    options.keep_going = [&](double done) {
      progress.Update(done);
      return !interrupted.load();
    };
    WINNOW_ASSIGN(const eval::EvalResults results,
                  eval::Evaluate(engine, task_, samples, variants, options));
    progress.Erase();
    return Finish(results);
  }

 private:
  // Warns once per method, not per budget.
  void WarnAboutIdleMethods(const std::vector<eval::Variant>& variants) {
    std::set<std::string> told;
    for (const eval::Variant& variant : variants) {
      const auto warning = NothingEvictedWarning(variant.options.compression);
      if (warning && told.insert(*warning).second) log_.Warning(*warning);
    }
  }

  Result<int> Finish(const eval::EvalResults& results) {
    if (results.n_known > 0) {
      log_.Info(std::to_string(results.n_known) + " results were in " + *flags_.results);
    }
    if (results.n_of_other_builds > 0) {
      log_.Warning(std::to_string(results.n_of_other_builds) + " of them are of another build (" +
                   results.other_build + "; this is " + BuildVersion() +
                   "); to compute all of them anew, use another file");
    }
    const std::string problems = eval::ListProblems(results);
    if (!problems.empty()) log_.Warning(problems);
    const Result<void> written = WriteFiles(results);
    if (!results.stopped && !HasAnyResult(results)) return Error{"no sample could be run"};
    if (!flags_.json || *flags_.json != "-") PrintTables(results);
    if (results.stopped) {
      log_.Warning(flags_.results
                       ? "interrupted; the same command goes on from here"
                       : "interrupted; with --results FILE the same command would go on from here");
    }
    const int printed = FinishOutput();
    if (!written) return written.error();
    return printed == kDone && results.stopped ? InterruptedCode() : printed;
  }

  // Writes all requested files, even if one fails. Error: that of the first failure.
  Result<void> WriteFiles(const eval::EvalResults& results) const {
    Result<void> written;
    const auto add = [&](Result<void> one) {
      if (written) written = std::move(one);
    };
    if (flags_.json) {
      add(WriteFileOrStdout(*flags_.json, report::ToJson(eval::ToRecord(results), 1) + "\n"));
    }
    if (!run_.answers.empty()) {
      const std::string model = std::filesystem::path(flags_.model.model).stem().string();
      add(eval::WriteFastChatAnswers(results, model, static_cast<double>(std::time(nullptr)),
                                     run_.answers));
    }
    if (flags_.report) add(eval::MakePage(results, HumanBytes).Write(*flags_.report));
    return written;
  }

  const eval::Task& task_;
  const eval::TaskRun& run_;
  EvalFlags& flags_;
  ConsoleLog& log_;
};

}  // namespace

int Eval(Arguments arguments) {
  EvalFlags flags;
  FlagTable table =
      MakeEvalTable(flags, arguments.empty() ? nullptr : eval::FindTask(arguments.front()));
  std::vector<std::string> positional;
  if (const auto over = ParseFlags(table, arguments, &positional)) return *over;
  if (positional.size() > 1) {
    return Misuse("eval", "unexpected argument '" + positional[1] + "'");
  }
  const eval::Task* task = nullptr;
  if (!positional.empty()) {
    task = eval::FindTask(positional[0]);
    if (task == nullptr) return Misuse("eval", UnknownTask(positional[0]));
  }
  if (flags.list) return List(task);
  if (task == nullptr) return Misuse("eval", "no task: 'winnow eval --list' lists them");
  if (const auto fits = CheckTaskFlags(*task, flags); !fits) {
    return Misuse("eval", fits.error().message);
  }
  const auto run = task->configure(flags.given);
  if (!run) return Misuse("eval", run.error().message);
  if (flags.raw && !flags.chat_template.empty()) {
    return Misuse("eval", "give only one of --raw and --chat-template");
  }
  if (!flags.budgets.equal_bytes.empty() && run->reads_token_by_token) {
    return Misuse("eval",
                  "--equal-bytes: bytes are compared after a prompt, and here texts are read token "
                  "by token; --protocol halves takes the first half of a window as a prompt");
  }
  if (!flags.budgets.equal_bytes.empty() && run->limits_memory) {
    return Misuse("eval", "give only one of --equal-bytes and --memory-limit");
  }
  const auto variants = MakeVariants(flags);
  if (!variants) return Misuse("eval", variants.error().message);
  flags.model.kv = {};  // Load opens a session with the full cache
  if (const auto valid = Validate(flags.model); !valid) {
    return Misuse("eval", valid.error().message);
  }
  CommandFiles files;
  files.UsesModel(flags.model);
  AddTaskFiles(*task, flags, eval::FileUse::kReads, files);
  files.Writes("--results", flags.results, Output::kLines);
  files.Writes("--json", flags.json, Output::kFileOrStdout);
  files.Writes("--report", flags.report, Output::kPage);
  AddTaskFiles(*task, flags, eval::FileUse::kWritesFolder, files);
  if (const auto over = files.Refused("eval")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  const auto code = EvalRun(*task, *run, flags, log).Run(*variants);
  return code ? *code : Fail(code.error());
}

}  // namespace winnow::apps

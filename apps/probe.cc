#include "eval/probes/probe.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/nearest.h"
#include "build.h"
#include "command_files.h"
#include "commands.h"
#include "eval/probes/follow.h"
#include "eval/probes/qkv.h"
#include "eval/run/identity.h"
#include "gguf/file_hash.h"
#include "interrupt.h"
#include "load.h"
#include "method_list.h"
#include "options.h"
#include "probe_findings.h"
#include "report/page/page.h"
#include "report/record.h"
#include "result_warnings.h"
#include "table.h"
#include "text_input.h"

namespace winnow::apps {
namespace {

constexpr double kDefaultRatio = 0.25;

struct ProbeFlags {
  ModelFlags model;
  TextSource text;
  std::vector<std::string> methods;
  BudgetLists budgets;
  int64_t n_tokens = 512;
  int64_t n_samples = 4;
  int64_t n_prompt = 0;
  bool list = false;
  std::optional<std::string> dump, json, report;
  std::vector<std::string> notes;
};

FlagTable MakeTable(ProbeFlags& flags) {
  FlagTable table(
      "probe", "NAME|all -m FILE -f FILE [flags]",
      "Analyses of what a model attends to and what methods keep, as in the papers' figures; "
      "'winnow probe --list' names them. They look at samples of a text, evenly spaced over it.");
  table.Switch({"--list"}, "list the probes", &flags.list);
  table.Group("Text");
  table.Add({"-f", "--file"}, "FILE", "the text, '-' for standard input", &flags.text.file);
  table.Add({"-p", "--prompt"}, "TEXT", "the text itself", &flags.text.text);
  AddRawTextFlag(table, flags.text);
  table.Add({"-n", "--tokens"}, "N", "tokens of a sample", &flags.n_tokens);
  table.Add({"--samples"}, "N", "samples; 'kept' and --dump-qkv look at the first only",
            &flags.n_samples);
  table.Add({"--prompt-tokens"}, "N",
            "where tokens are also decoded one by one: how many of a sample are the prompt before; "
            "0: half of them ('kept'), all of them (--dump-qkv)",
            &flags.n_prompt);
  table.Group("Output");
  table.Add({"--json"}, "FILE", "the numbers, '-' for standard output", &flags.json);
  table.Add({"--report"}, "FILE",
            "a page with the figures (HTML); figures and data also as files beside it",
            &flags.report);
  table.Add({"--dump-qkv"}, "FILE",
            "instead of a probe: write the queries, keys and values of the first sample, for "
            "'winnow replay'; under the method, if one is given (safetensors)",
            &flags.dump);
  AddModelFlags(table, flags.model);
  table.Group("KV cache");
  AddMethodListFlag(table, &flags.methods);
  AddBudgetListFlags(table, flags.budgets);
  AddKvFlags(table, flags.model.kv, MethodFlag::kOwn);
  AddLogFlags(table, flags.model);
  AddForeignFlags(table, flags.notes);
  return table;
}

int List() {
  std::vector<report::Record> rows;
  for (const eval::Probe& probe : eval::Probes()) {
    rows.push_back(
        {{"probe", probe.name}, {"what it shows", probe.summary}, {"as in", probe.source}});
  }
  PrintTable(rows, 1);
  return FinishOutput();
}

Result<std::vector<const eval::Probe*>> ProbesNamed(const std::string& name) {
  std::vector<const eval::Probe*> found;
  std::vector<std::string_view> names = {"all"};
  for (const eval::Probe& probe : eval::Probes()) {
    names.push_back(probe.name);
    if (name == "all" || name == probe.name) found.push_back(&probe);
  }
  if (!found.empty()) return found;
  const std::string_view nearest = NearestWord(name, names);
  return Error{"no probe '" + name + "'" +
               (nearest.empty() ? "; 'winnow probe --list' lists them"
                                : "; did you mean " + std::string(nearest) + "?")};
}

// The methods given by the user, or those that the probe's paper compares. The default budget is a
// quarter of the prompt, or the method's minimum if that is larger.
Result<std::vector<eval::Candidate>> MethodsFrom(const ProbeFlags& flags, std::string_view defaults,
                                                 int64_t n_prompt) {
  BudgetLists budgets = flags.budgets;
  const bool by_default = budgets.empty();
  if (by_default) budgets.ratios = {kDefaultRatio};
  std::vector<std::string> names = flags.methods;
  if (names.empty() && !defaults.empty()) {
    WINNOW_ASSIGN(names, SplitMethods(defaults));
  }
  const bool has_several = ListBudgets(budgets, {}).size() > 1;
  std::vector<eval::Candidate> methods;
  for (const std::string& name : names) {
    if (name == "full") {
      methods.emplace_back();
      continue;
    }
    WINNOW_ASSIGN(auto own, ListCandidates(name, budgets, flags.model.kv));
    for (eval::Candidate& candidate : own) {
      runtime::CompressionOptions& options = candidate.compression;
      const int64_t min = options.method->traits().budget.min;
      if (by_default && options.ratio > 0 &&
          options.ratio * static_cast<double>(n_prompt) < static_cast<double>(min)) {
        options.ratio = 0;
        options.size = min;
      }
      if (!has_several) candidate.budget.clear();
      methods.push_back(std::move(candidate));
    }
  }
  return methods;
}

int64_t PromptTokens(const ProbeFlags& flags, int64_t otherwise) {
  return flags.n_prompt > 0 ? flags.n_prompt : otherwise;
}

std::optional<std::string> Contradiction(const ProbeFlags& flags) {
  if (flags.n_tokens < 2) return "flag -n: expected 2 or more";
  if (flags.n_samples < 1) return "flag --samples: expected 1 or more";
  if (flags.n_prompt < 0 || flags.n_prompt > flags.n_tokens) {
    return "flag --prompt-tokens: found " + std::to_string(flags.n_prompt) + ", a sample has " +
           std::to_string(flags.n_tokens);
  }
  if (flags.model.kv.trace) return "flag --trace: use it with 'winnow run' and one method";
  const size_t n_budgets = ListBudgets(flags.budgets, {}).size();
  if (flags.dump && (flags.methods.size() > 1 || n_budgets > 1)) {
    return "--dump-qkv takes one method under one budget at most";
  }
  if (flags.dump && (flags.json || flags.report)) {
    return "--dump-qkv writes a recording only: leave out --json and --report";
  }
  return std::nullopt;
}

class ProbeRun {
 public:
  ProbeRun(ProbeFlags& flags, ConsoleLog& log) : flags_(flags), log_(log) {}

  Result<void> Open() {
    WINNOW_ASSIGN(loaded_, Load(flags_.model, log_));
    WINNOW_TRY(CheckTrainedContext(flags_.model.kv, *loaded_.session, flags_.n_tokens));
    loaded_.session.reset();
    if (!loaded_.engine->model().hyperparameters().has_equal_heads()) {
      return Error{
          "probe: the layers of this model differ in their heads (winnow inspect lists them); "
          "probes compare layers that have the same"};
    }
    WINNOW_ASSIGN(session_, SessionOptionsFrom(flags_.model));
    WINNOW_ASSIGN(std::string text, ReadText(flags_.text, log_));
    if (!flags_.text.text) text = WithoutFinalNewline(std::move(text));
    const tokenizer::Tokenizer& tokenizer = loaded_.engine->tokenizer();
    const std::vector<runtime::TokenId> tokens = tokenizer.Encode(text);
    WINNOW_ASSIGN(samples_, eval::CutSamples(tokens, tokenizer, flags_.n_tokens, flags_.n_samples));
    n_text_ = static_cast<int64_t>(tokens.size());
    return {};
  }

  // Runs the probes and prints or writes their findings. Returns the exit code.
  struct Chosen {
    const eval::Probe* probe;
    std::vector<eval::Candidate> methods;
  };
  Result<int> Run(const std::vector<Chosen>& chosen) {
    const std::atomic<bool>& interrupted = CatchInterrupt();
    const ResultWarnings warnings(*loaded_.engine, log_);
    WINNOW_ASSIGN(const report::Record facts, Facts());
    report::Page page(
        chosen.size() == 1 ? "Probe: " + std::string(chosen[0].probe->name) : "Probes", "", facts);
    report::List found;
    for (const Chosen& one : chosen) {
      ProgressLine progress(std::string(one.probe->name));
      eval::ProbeTask task = {.engine = *loaded_.engine,
                              .session = session_,
                              .methods = one.methods,
                              .samples = samples_,
                              .n_prompt = PromptTokens(flags_, flags_.n_tokens / 2)};
      task.progress = [&](double done) {
        progress.Update(done);
        return !interrupted.load();
      };
      WINNOW_ASSIGN(auto findings, one.probe->run(task));
      progress.Erase();
      if (!findings) {
        log_.Warning("interrupted: " + std::to_string(found.size()) + " of " +
                     std::to_string(chosen.size()) + " probes are finished");
        break;
      }
      report::Record record = {{"probe", one.probe->name}, {"source", one.probe->source}};
      for (const report::Record* numbers : {&findings->summary, &findings->details}) {
        for (const report::Field& field : numbers->fields) record.fields.push_back(field);
      }
      if (!flags_.json || *flags_.json != "-") PrintFindings(*one.probe, *findings);
      found.emplace_back(std::move(record));
      AddTo(page, *one.probe, std::move(*findings));
    }
    const bool finished = found.size() == chosen.size();
    if (found.empty()) return InterruptedCode();
    if (flags_.json) {
      const report::Record all = {{"facts", facts}, {"probes", std::move(found)}};
      WINNOW_TRY(WriteFileOrStdout(*flags_.json, report::ToJson(all, 1) + "\n"));
    }
    if (flags_.report) {
      WINNOW_TRY(page.Write(*flags_.report));
      log_.Info("page   " + *flags_.report);
    }
    const int printed = FinishOutput();
    return printed == kDone && !finished ? InterruptedCode() : printed;
  }

  Result<int> Dump(const eval::Candidate& method) {
    const std::atomic<bool>& interrupted = CatchInterrupt();
    const ResultWarnings warnings(*loaded_.engine, log_);
    eval::QkvRecorder recorder(*loaded_.engine, eval::QkvRecorder::Options{});
    ProgressLine progress("recording");
    eval::ProbeTask task = {.engine = *loaded_.engine,
                            .session = session_,
                            .methods = {},
                            .samples = samples_,
                            .n_prompt = PromptTokens(flags_, flags_.n_tokens)};
    task.session.on_projections = recorder.Hook();
    task.progress = [&](double done) {
      progress.Update(done);
      return !interrupted.load();
    };
    WINNOW_ASSIGN(const auto followed,
                  eval::Follow(task, method, samples_[0], task.n_prompt, eval::ProgressRange{}));
    progress.Erase();
    if (!followed) {
      log_.Warning("interrupted: " + *flags_.dump + " was not written");
      return InterruptedCode();
    }
    if (const auto written = recorder.Write(*flags_.dump, task.n_prompt); !written) {
      return Error{*flags_.dump + ": " + written.error().message};
    }
    if (!recorder.CanDescribeRope()) {
      log_.Warning(
          "this model's rotation has no name in the file: keys and queries before RoPE "
          "were left out, methods that reassign positions cannot be replayed");
    }
    Print(*flags_.dump + ": " + std::to_string(recorder.n_tokens()) + " tokens, " +
          std::to_string(task.n_prompt) + " of them a prompt\n");
    return FinishOutput();
  }

 private:
  Result<report::Record> Facts() const {
    const runtime::Engine& engine = *loaded_.engine;
    const std::string hash = gguf::ContentHash(engine.file());
    const std::string file = std::filesystem::path(flags_.model.model).filename().string();
    const std::string text =
        flags_.text.file ? std::filesystem::path(*flags_.text.file).filename().string() : "-p";
    return report::Record{
        {"model", file + ", " + DescribeEngine(engine)},
        {"model hash", hash},
        {"text", text + ", " + std::to_string(n_text_) + " tokens; " +
                     std::to_string(flags_.n_samples) + " samples of " +
                     std::to_string(flags_.n_tokens)},
        {"cache", "keys " + flags_.model.key_type + ", values " + flags_.model.value_type},
        {"machine", Joined(eval::MachineRecord(std::string(loaded_.engine->backend().target())))},
        {"winnow", BuildVersion()}};
  }

  // The values of a record: "a, b, c".
  static std::string Joined(const report::Record& record) {
    std::string text;
    for (const report::Field& field : record.fields) {
      const auto* word = std::get_if<std::string>(&field.value.data);
      text += (text.empty() ? "" : ", ") +
              (word != nullptr ? *word : field.name + " " + report::ToJson(field.value));
    }
    return text;
  }

  static void AddTo(report::Page& page, const eval::Probe& probe, eval::Findings findings) {
    page.AddSection(std::string(probe.title),
                    findings.text + " As in " + std::string(probe.source) + ".");
    for (report::TokenMap& map : findings.maps) page.AddTokenMap(std::move(map));
    for (report::Figure& figure : findings.figures) page.AddFigure(std::move(figure));
    for (report::Table& table : findings.tables) page.AddTable(std::move(table));
  }

  ProbeFlags& flags_;
  ConsoleLog& log_;
  Loaded loaded_;
  runtime::SessionOptions session_;
  std::vector<std::vector<runtime::TokenId>> samples_;
  int64_t n_text_ = 0;
};

// The probes of that name, each with the methods it examines.
Result<std::vector<ProbeRun::Chosen>> FindProbes(const ProbeFlags& flags, const std::string& name) {
  WINNOW_ASSIGN(const auto probes, ProbesNamed(name));
  std::vector<ProbeRun::Chosen> chosen;
  for (const eval::Probe* probe : probes) {
    ProbeRun::Chosen one = {probe, {}};
    if (!probe->default_methods.empty()) {
      const int64_t n_prompt =
          probe->on_prompts_only ? flags.n_tokens : PromptTokens(flags, flags.n_tokens / 2);
      WINNOW_ASSIGN(one.methods, MethodsFrom(flags, probe->default_methods, n_prompt));
    } else if (!flags.methods.empty() && probes.size() == 1) {
      return Error{name + " looks at the full cache: leave out --kv-method"};
    }
    chosen.push_back(std::move(one));
  }
  return chosen;
}

}  // namespace

int Probe(Arguments arguments) {
  ProbeFlags flags;
  FlagTable table = MakeTable(flags);
  std::vector<std::string> names;
  if (const auto over = ParseFlags(table, arguments, &names)) return *over;
  if (flags.list) return List();
  if (names.size() > 1) return Misuse("probe", "unexpected argument '" + names[1] + "'");
  if (names.empty() != flags.dump.has_value()) {
    return Misuse("probe", flags.dump ? "--dump-qkv takes no probe: leave out '" + names[0] + "'"
                                      : "no probe: give a name, or all; --list lists them");
  }
  if (const auto wrong = Contradiction(flags)) return Misuse("probe", *wrong);
  std::vector<ProbeRun::Chosen> chosen;
  if (!flags.dump) {
    auto found = FindProbes(flags, names[0]);
    if (!found) return Misuse("probe", found.error().message);
    chosen = *std::move(found);
  }
  eval::Candidate dumped;
  if (flags.dump && !flags.methods.empty()) {
    auto methods = MethodsFrom(flags, "", PromptTokens(flags, flags.n_tokens));
    if (!methods) return Misuse("probe", methods.error().message);
    dumped = methods->front();
  }
  KvFlags kv;  // Load opens a session with the full cache and no budget
  kv.strict = flags.model.kv.strict;
  flags.model.kv = kv;
  if (const auto valid = Validate(flags.model); !valid) {
    return Misuse("probe", valid.error().message);
  }
  CommandFiles files;
  files.UsesModel(flags.model);
  files.Reads("-f", flags.text.file);
  files.Writes("--json", flags.json, Output::kFileOrStdout);
  files.Writes("--report", flags.report, Output::kPage);
  files.Writes("--dump-qkv", flags.dump);
  if (const auto over = files.Refused("probe")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  ProbeRun run(flags, log);
  if (const auto opened = run.Open(); !opened) return Fail(opened.error());
  const auto code = flags.dump ? run.Dump(dumped) : run.Run(chosen);
  return code ? *code : Fail(code.error());
}

}  // namespace winnow::apps

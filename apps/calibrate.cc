#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command_files.h"
#include "commands.h"
#include "compression/error_profile.h"
#include "compression/registry.h"
#include "eval/tasks/builtin_text.h"
#include "eval/tasks/texts.h"
#include "interrupt.h"
#include "load.h"
#include "options.h"
#include "result_warnings.h"

namespace winnow::apps {
namespace {

using tokenizer::TokenId;

struct CalibrateFlags {
  ModelFlags model;
  std::string data = eval::kBuiltin;
  std::string output;  // empty: beside the model
  int64_t n_prompts = 16;
  int64_t length = 1024;
};

// Budget as a share of the prompt. Any value below 1 does: a method decides only if it must evict.
constexpr double kRatio = 0.25;
constexpr int64_t kMinLength = 64;

FlagTable MakeTable(CalibrateFlags& flags) {
  FlagTable table("calibrate", "[-m FILE] [-f TEXTS] [flags]",
                  "Measures on some prompts what leaving entries out does to the output of each "
                  "head, and writes the means to a small file that belongs to the model. Methods "
                  "that share the budget by it (winnow methods) then need not measure it on every "
                  "prompt. Takes three to six times as long as reading the prompts.");
  table.Add({"-m", "--model"}, "FILE", kModelHelp, &flags.model.model);
  table.Add({"-f", "--data"}, "TEXTS",
            std::string("what the prompts are cut from: ") + eval::kTextData, &flags.data);
  table.Add(
      {"-o", "--output"}, "FILE",
      "where the profile goes, '-' for standard output; by default MODEL.profile, where it is "
      "found by itself",
      &flags.output);
  table.Add({"--prompts"}, "N", "prompts, at equal distances in the texts", &flags.n_prompts);
  table.Add({"--length"}, "N", "tokens of a prompt", &flags.length);
  table.Add({"-t", "--threads"}, "N", "threads; -1: one for each core", &flags.model.threads);
  table.Add({"--cpu-target"}, "NAME", "instruction set to use; empty: the best there is",
            &flags.model.cpu_target);
  AddLogFlags(table, flags.model);
  return table;
}

// Cuts prompts of `length` tokens at equal distances. Error: too few tokens.
Result<std::vector<std::vector<TokenId>>> CutPrompts(const CalibrateFlags& flags,
                                                     const tokenizer::Tokenizer& tokenizer) {
  WINNOW_ASSIGN(const std::vector<eval::NamedText> texts, eval::ReadTexts(flags.data));
  std::vector<TokenId> all;
  for (const eval::NamedText& text : texts) {
    const std::vector<TokenId> tokens =
        tokenizer.Encode(text.text, {.add_special = false, .parse_special = false});
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  const auto n = std::ssize(all);
  if (n < flags.length) {
    return Error{flags.data + ": " + std::to_string(n) + " tokens, expected at least " +
                 std::to_string(flags.length) + " (--length)"};
  }
  // A short text has only this many distinct windows.
  const int64_t n_prompts = std::min(flags.n_prompts, n - flags.length + 1);
  std::vector<std::vector<TokenId>> prompts;
  for (int64_t i = 0; i < n_prompts; ++i) {
    const int64_t first = (n - flags.length) * i / std::max<int64_t>(1, n_prompts - 1);
    std::vector<TokenId>& prompt = prompts.emplace_back();
    if (tokenizer.adds_bos() && tokenizer.bos()) prompt.push_back(*tokenizer.bos());
    const auto n_text = flags.length - std::ssize(prompt);
    prompt.insert(prompt.end(), all.begin() + first, all.begin() + first + n_text);
  }
  return prompts;
}

// The method that reports error curves; there is exactly one.
compression::MethodPtr CurveMethod() {
  for (const compression::MethodEntry& entry : compression::Methods()) {
    auto method = compression::MakeMethod(entry.name);
    if (method && (*method)->traits().reports_error_curves) return *std::move(method);
  }
  return nullptr;
}

struct Calibration {
  compression::ErrorProfiles profiles;
  bool interrupted = false;
};

Result<Calibration> Measure(runtime::Engine& engine, std::span<const std::vector<TokenId>> prompts,
                            const std::atomic<bool>& interrupted) {
  const cache::CacheShape shape = engine.model().cache_shape();
  Calibration found = {.profiles = {shape.n_layers, shape.n_kv_heads}};
  runtime::SessionOptions options;
  options.compression.method = CurveMethod();
  options.compression.ratio = kRatio;
  options.compression.on_error_curve = [&](compression::EntryOrder order, int layer, int kv_head,
                                           const compression::ErrorCurve& curve) {
    found.profiles.For(order).Add(layer, kv_head, curve);
  };
  ProgressLine progress("calibrating");
  for (size_t i = 0; i < prompts.size(); ++i) {
    WINNOW_ASSIGN(const auto session, runtime::Session::Make(engine, options));
    const auto report = [&](double done) {
      progress.Update((static_cast<double>(i) + done) / static_cast<double>(prompts.size()));
      return !interrupted;
    };
    WINNOW_ASSIGN(
        const bool read,
        session->Prefill(prompts[i], {.on_logits = {}, .logits_from = -1, .progress = report}));
    if (!read) {
      found.interrupted = true;
      return found;
    }
    if (engine.n_not_replayed() > 0) {
      return Error{"--length: prompts of " + std::to_string(prompts[i].size()) +
                   " tokens are to be read twice, which the model's context of " +
                   std::to_string(engine.model().context()) +
                   " tokens has no room for; try half of it"};
    }
    for (const auto order : {compression::EntryOrder::kReplay, compression::EntryOrder::kWindow}) {
      found.profiles.For(order).EndPrompt();
    }
  }
  return found;
}

}  // namespace

int Calibrate(Arguments arguments) {
  CalibrateFlags flags;
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (flags.n_prompts < 1) return Misuse("calibrate", "flag --prompts: expected at least 1");
  if (flags.length < kMinLength) {
    return Misuse("calibrate",
                  "flag --length: expected at least " + std::to_string(kMinLength) + " tokens");
  }
  if (flags.output.empty()) {
    if (flags.model.model == kBundled) {
      return Misuse("calibrate",
                    "the bundled model contains its profile; give -o to write another file");
    }
    flags.output = runtime::ProfilePath(flags.model.model);
  }
  if (const auto valid = Validate(flags.model); !valid) {
    return Misuse("calibrate", valid.error().message);
  }
  CommandFiles files;
  files.UsesModel(flags.model);
  if (flags.data != eval::kBuiltin) files.Reads("-f", flags.data);
  files.Writes("-o", flags.output, Output::kFileOrStdout);
  if (const auto over = files.Refused("calibrate")) return *over;

  ConsoleLog log = MakeLog(flags.model, {});
  const std::atomic<bool>& interrupted = CatchInterrupt();
  auto loaded = Load(flags.model, log);
  if (!loaded) return Fail(loaded.error());
  loaded->session.reset();
  runtime::Engine& engine = *loaded->engine;
  const ResultWarnings warnings(engine, log);
  const int64_t trained = engine.model().context();
  if (flags.length > trained) {
    return Fail(Error{"--length: prompts of " + std::to_string(flags.length) +
                      " tokens, the model was trained for " + std::to_string(trained)});
  }
  const auto prompts = CutPrompts(flags, engine.tokenizer());
  if (!prompts) return Fail(prompts.error());
  const auto found = Measure(engine, *prompts, interrupted);
  if (!found) return Fail(found.error());
  if (found->interrupted) {
    log.Warning("interrupted: nothing is written");
    return InterruptedCode();
  }
  const auto written =
      WriteFileOrStdout(flags.output, compression::ToText(found->profiles, engine.model_hash()));
  if (!written) return Fail(written.error());
  log.Info("wrote  " + flags.output + ": " + std::to_string(prompts->size()) + " prompts of " +
           std::to_string(flags.length) + " tokens");
  return FinishOutput();
}

}  // namespace winnow::apps

#include "options.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "api/convert.h"
#include "gguf/file_type.h"
#include "models/bundled.h"

namespace winnow::apps {
namespace {

using kernels::TensorType;

constexpr const char* kCacheTypes = "f32, f16, bf16, q8_0, q4_0";

std::string FlagName(std::string_view parameter) {
  std::string flag = "--" + std::string(parameter);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// Parses "15043+1.5", "15043-1", "2-inf", "2=3", "2=false".
Result<std::pair<int32_t, float>> ParseBias(const std::string& text) {
  const Error wrong{"flag -l: '" + text + "' is not TOKEN+BIAS or TOKEN-BIAS, such as 2-inf"};
  const size_t at = text.find_first_of("+-=", 1);
  if (at == std::string::npos) return wrong;
  const auto token = ParseInteger(text.substr(0, at));
  if (!token || !std::in_range<int32_t>(*token)) return wrong;
  std::string value = text.substr(at + (text[at] == '-' ? 0 : 1));
  if (value == "false") value = "-inf";
  const auto bias = ParseDecimal(value);
  if (!bias) return wrong;
  return std::pair{static_cast<int32_t>(*token), static_cast<float>(*bias)};
}

}  // namespace

void AddModelFlags(FlagTable& table, ModelFlags& flags, const char* context_help) {
  table.Group("Model");
  table.Add({"-m", "--model"}, "FILE", kModelHelp, &flags.model);
  table.Switch({"--check-tensors"}, "look for NaN and infinities in the weights while loading",
               &flags.check_tensors);
  table.Group("Computing");
  table.Add({"-t", "--threads"}, "N", "threads; -1: one for each core", &flags.threads);
  table.Add({"-c", "--ctx-size"}, "N", context_help, &flags.context);
  table.Add({"-ctk", "--cache-type-k"}, "TYPE", std::string("how keys are stored: ") + kCacheTypes,
            &flags.key_type);
  table.Add({"-ctv", "--cache-type-v"}, "TYPE", "how values are stored: as for keys",
            &flags.value_type);
  table.Switch({"--no-kv-rotation"},
               "store q4_0 keys as they are, without the Hadamard transform that spreads their "
               "large components",
               &flags.no_kv_rotation);
  table.Add({"-ub", "--ubatch-size"}, "N", "tokens of the prompt computed at a time inside a layer",
            &flags.micro_batch);
  table.Add({"-b", "--batch-size"}, "N",
            "upper bound of -ub, as in llama.cpp; a prompt always goes through layer by layer",
            &flags.batch);
  table.Switch({"--deterministic"},
               "bit-identical results regardless of batching; a single sequence is slower",
               &flags.deterministic);
  table.Add(
      {"--cpu-target"}, "NAME",
      "instruction set to use, such as AVX2; empty: the best there is; reference: plain loops",
      &flags.cpu_target);
}

void AddLogFlags(FlagTable& table, ModelFlags& flags, FlagTable::Names quiet_names) {
  table.Group("Messages");
  table.Switch(std::move(quiet_names), "only warnings and errors on stderr", &flags.quiet);
  table.Switch({"-v", "--verbose"}, "more on stderr", &flags.verbose);
  table.Add({{"-h", "--help"}, "", "this text", "", {}, false, {}});
}

void AddSamplerFlags(FlagTable& table, SamplerFlags& flags) {
  table.Group("Sampling (in the order they act)");
  table.Add({"-s", "--seed"}, "N", "start of the random sequence; -1: another one each time",
            &flags.seed);
  table.Add({"-l", "--logit-bias"}, "ID+B",
            "add B to the logit of token ID, as in 15043+1.5 or 2-inf; can be repeated",
            &flags.logit_bias);
  table.Switch({"--ignore-eos"}, "never choose a token that ends the text", &flags.ignore_eos);
  runtime::Visit(flags.sampling, [&](std::string_view name, auto& value, const char* help) {
    if (name == "seed") return;
    FlagTable::Names names = {FlagName(name)};
    if (name == "temperature") names.insert(names.begin(), "--temp");
    if (name == "typical_p") names.insert(names.begin(), "--typical");
    table.Add(std::move(names), "N", help, &value);
  });
}

void AddForeignFlags(FlagTable& table, std::vector<std::string>& notes) {
  const auto note = [&](FlagTable::Names names, const char* value, const std::string& text,
                        std::vector<std::string> optional_values = {}) {
    const std::string name = names.back();
    table.Add({std::move(names), value, text, "", std::move(optional_values), true,
               [&notes, name, text](std::string_view) {
                 notes.push_back(name + " has no effect: " + text);
                 return Result<void>();
               }});
  };
  const auto satisfied = [&](FlagTable::Names names, const char* value = "",
                             std::vector<std::string> optional_values = {}) {
    table.Add({std::move(names), value, "", "", std::move(optional_values), true,
               [](std::string_view) { return Result<void>(); }});
  };
  const auto refuse = [&](FlagTable::Names names, const char* value, const std::string& reason) {
    table.Add({std::move(names), value, reason, "", {}, true, [reason](std::string_view) {
                 return Result<void>(Error{reason});
               }});
  };
  // Accepted without effect: winnow works this way anyway.
  satisfied({"--mmap"});
  satisfied({"--no-warmup"});
  satisfied({"--no-context-shift"});
  satisfied({"--simple-io"});
  satisfied({"--offline"});

  const std::string no_gpu = "no GPU backend yet, everything runs on the CPU";
  note({"-ngl", "--gpu-layers", "--n-gpu-layers"}, "N", no_gpu);
  note({"-sm", "--split-mode"}, "MODE", no_gpu);
  note({"-ts", "--tensor-split"}, "LIST", no_gpu);
  note({"-mg", "--main-gpu"}, "N", no_gpu);
  note({"-dev", "--device"}, "LIST", no_gpu);
  table.Add({{"-nkvo", "--no-kv-offload"},
             "",
             "",
             "",
             {"0", "1", "0,1"},
             true,
             [&notes, no_gpu](std::string_view) {
               notes.push_back("--no-kv-offload has no effect: " + no_gpu);
               return Result<void>();
             }});
  table.Add({{"-fa", "--flash-attn"},
             "",
             "",
             "",
             {"on", "off", "auto", "0", "1", "0,1", "1,0"},
             true,
             [&notes](std::string_view value) {
               if (value != "on" && value != "1" && value != "auto" && !value.empty()) {
                 notes.emplace_back(
                     "--flash-attn off has no effect: attention is always computed in one pass");
               }
               return Result<void>();
             }});
  note({"-tb", "--threads-batch"}, "N", "prefill and decode share the threads of -t");
  note({"--mlock"}, "", "memory is not locked");
  note({"--no-mmap"}, "", "model files are always memory-mapped");
  note({"-lm", "--load-mode"}, "MODE", "model files are always memory-mapped");
  note({"--numa"}, "MODE", "threads are not bound to memory nodes");
  note({"-C", "--cpu-mask"}, "M", "use taskset to choose cores");
  note({"--prio"}, "N", "use nice to set a priority");
  note({"--poll"}, "N", "waiting threads spin briefly, then sleep");
  note({"--keep"}, "N", "nothing is shifted out of a full context");
  note({"--warmup"}, "", "only bench warms up");

  const std::string no_download = "winnow downloads nothing; give a file with -m";
  refuse({"-hf", "-hfr", "--hf-repo"}, "REPO", no_download);
  refuse({"-hff", "--hf-file"}, "FILE", no_download);
  refuse({"-hft", "--hf-token"}, "TOKEN", no_download);
  refuse({"-mu", "--model-url"}, "URL", no_download);
  refuse({"--context-shift"}, "", "a full context ends the generation; nothing is shifted out");
  const std::string fixed_order =
      "the samplers and their order are fixed: penalties, top-k, typical, top-p, min-p, "
      "temperature";
  refuse({"--samplers", "--sampling-seq"}, "LIST", fixed_order);
  for (const char* name : {"--mirostat", "--xtc-probability", "--dry-multiplier", "--top-nsigma",
                           "--dynatemp-range"}) {
    refuse({name}, "N", "this sampler is not implemented");
  }
  for (const char* name :
       {"--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"}) {
    // 'run' has these flags; requests to 'serve' have fields for them.
    if (!table.Has(name)) refuse({name}, "G", "only 'winnow run' and requests to a server have it");
  }
  for (const char* name : {"--rope-scaling", "--rope-scale", "--rope-freq-base",
                           "--rope-freq-scale", "--override-kv", "--lora"}) {
    refuse({name}, "V", "the model is used as its file says");
  }
  const std::string no_draft = "no speculative decoding yet; omit the draft model";
  refuse({"-md", "--model-draft"}, "FILE", no_draft);
  for (const char* name : {"--draft", "--draft-max", "--draft-min"}) refuse({name}, "N", no_draft);
  note({"-mmp", "--mmap-mode"}, "0|1", "model files are always memory-mapped");
  refuse({"--log-file"}, "FILE", "redirect stderr instead: 2>FILE");
  table.Note(
      "Flags of llama.cpp that have no place here are accepted with a note where they would change "
      "nothing in the result (-ngl, -fa, --mlock, ...), and refused with the reason where they "
      "would (--mirostat, -hf, ...).");
}

std::optional<int> ParseFlags(FlagTable& table, std::span<const std::string> arguments,
                              std::vector<std::string>* positional) {
  auto rest = table.Parse(arguments);
  if (!rest) return Misuse(table.command(), rest.error().message);
  if (table.help_wanted()) {
    Print(table.Help());
    return FinishOutput();
  }
  if (positional != nullptr) {
    *positional = std::move(rest).value();
  } else if (!rest->empty()) {
    return Misuse(table.command(), "unexpected argument '" + rest->front() + "'");
  }
  return std::nullopt;
}

Result<runtime::EngineOptions> EngineOptionsFrom(const ModelFlags& flags) {
  if (flags.threads == 0 || flags.threads < -1 || flags.threads > ThreadPool::kMaxThreads) {
    return Error{"flag -t: " + std::to_string(flags.threads) + " threads; expected 1 to " +
                 std::to_string(ThreadPool::kMaxThreads) + ", or -1"};
  }
  if (flags.context < 0) return Error{"flag -c: the context cannot be negative"};
  WINNOW_ASSIGN(const runtime::CompressionOptions compression, CompressionOptionsFrom(flags.kv));
  const int64_t n_replay =
      compression.method ? compression.method->needs().replay.MaxTokens(flags.context) : 0;
  return runtime::EngineOptions{
      .model_path = flags.model,
      .n_threads = std::max(flags.threads, 0),
      .target = flags.cpu_target,
      .context = flags.context,
      .spare_context = n_replay,
      .check_tensors = flags.check_tensors,
      .deterministic = flags.deterministic,
      .error_profiles = flags.model == kBundled ? models::BundledProfile() : std::string_view()};
}

Result<TensorType> ParseCacheType(const std::string& flag, const std::string& name) {
  const auto type = gguf::TensorTypeFromName(name);
  if (!type || !kernels::IsCacheType(*type)) {
    return Error{"flag " + flag + ": '" + name + "' is not a cache type; expected one of " +
                 kCacheTypes};
  }
  return *type;
}

Result<runtime::SessionOptions> SessionOptionsFrom(const ModelFlags& flags) {
  if (flags.batch < 1 || flags.micro_batch < 1) return Error{"-b and -ub must be at least 1"};
  runtime::SessionOptions options;
  options.context = flags.context;
  options.row_block = std::min(flags.batch, flags.micro_batch);
  WINNOW_ASSIGN(options.key_type, ParseCacheType("-ctk", flags.key_type));
  WINNOW_ASSIGN(options.value_type, ParseCacheType("-ctv", flags.value_type));
  options.rotate_keys = !flags.no_kv_rotation;
  WINNOW_ASSIGN(options.compression, CompressionOptionsFrom(flags.kv));
  return options;
}

Result<void> Validate(const ModelFlags& flags) {
  WINNOW_TRY(EngineOptionsFrom(flags));
  WINNOW_TRY(SessionOptionsFrom(flags));
  return {};
}

ConsoleLog MakeLog(const ModelFlags& flags, const std::vector<std::string>& notes) {
  ConsoleLog log(flags.quiet     ? LogLevel::kWarning
                 : flags.verbose ? LogLevel::kDebug
                                 : LogLevel::kInfo);
  for (const std::string& note : notes) log.Warning(note);
  return log;
}

namespace {

// `ends`: returns the tokens that end generation.
template <class Tokens>
Result<Sampling> MakeSampling(const SamplerFlags& flags, const Tokens& ends) {
  Sampling sampling = flags.sampling;
  sampling.seed = flags.seed < 0 ? std::random_device()() : static_cast<uint64_t>(flags.seed);
  for (const std::string& text : flags.logit_bias) {
    WINNOW_ASSIGN(const auto bias, ParseBias(text));
    sampling.logit_bias.push_back(bias);
  }
  if (!flags.ignore_eos) return sampling;
  for (const Token token : ends()) {
    sampling.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  }
  return sampling;
}

}  // namespace

Result<Sampling> SamplingFrom(const SamplerFlags& flags, const Model& model) {
  return MakeSampling(flags, [&] {
    std::vector<Token> ends;
    for (Token token = 0; token < model.vocabulary_size(); ++token) {
      if (model.EndsGeneration(token)) ends.push_back(token);
    }
    return ends;
  });
}

Result<runtime::SamplerConfig> SamplerConfigFrom(const SamplerFlags& flags,
                                                 const tokenizer::Tokenizer& tokenizer) {
  WINNOW_ASSIGN(const Sampling sampling,
                MakeSampling(flags, [&] { return tokenizer.end_of_generation(); }));
  return api::Convert(sampling);
}

int Fail(const Error& error) {
  ConsoleLog().Error(error.message);
  return kFailed;
}

int Misuse(const std::string& command, const std::string& message) {
  ConsoleLog().Error(message);
  ConsoleLog().Write(LogLevel::kInfo,
                     "Try 'winnow " + (command.empty() ? "" : command + " ") + "--help'.");
  return kMisused;
}

}  // namespace winnow::apps

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "console.h"
#include "flags.h"
#include "kv_flags.h"
#include "model_file.h"
#include "runtime/engine.h"
#include "runtime/generate/sampler.h"
#include "runtime/session/session.h"
#include "winnow/model.h"
#include "winnow/sampling.h"

// Flags shared by several commands, and the options made from them.
namespace winnow::apps {

struct ModelFlags {
  std::string model = kBundled;
  int threads = -1;  // -1: all cores
  int64_t context = 0;
  int64_t batch = 2048;
  int64_t micro_batch = 512;
  std::string key_type = "f16";
  std::string value_type = "f16";
  bool no_kv_rotation = false;
  std::string cpu_target;
  bool check_tensors = false;
  bool deterministic = false;
  bool quiet = false;
  bool verbose = false;
  KvFlags kv;                                        // of commands that take them
  std::optional<std::string> restored_session = {};  // session file that Load restores
};

constexpr const char* kContextHelp = "tokens the cache can hold; 0: what the model was trained for";
void AddModelFlags(FlagTable& table, ModelFlags& flags, const char* context_help = kContextHelp);
// -s, --temp, --top-k, ... from Visit(Sampling), and the logit bias.
struct SamplerFlags {
  Sampling sampling;
  int64_t seed = -1;  // -1: a different one each time
  std::vector<std::string> logit_bias;
  bool ignore_eos = false;
};
void AddSamplerFlags(FlagTable& table, SamplerFlags& flags);

// llama.cpp flags that do not apply here. Those without effect are accepted with a message in
// `notes`; those whose absence would change results are rejected with the reason.
void AddForeignFlags(FlagTable& table, std::vector<std::string>& notes);

// --quiet and --verbose, and llama.cpp's names for them.
void AddLogFlags(FlagTable& table, ModelFlags& flags,
                 FlagTable::Names quiet_names = {"-q", "--quiet", "--log-disable"});

// Parses the arguments and prints the help if wanted. Returns an exit code if the command ends
// here: after --help or misuse.
std::optional<int> ParseFlags(FlagTable& table, std::span<const std::string> arguments,
                              std::vector<std::string>* positional = nullptr);

// Parses the cache type given to `flag`, such as "-ctk". Error (misuse): not a cache type.
Result<kernels::TensorType> ParseCacheType(const std::string& flag, const std::string& name);
// Model and session options from the flags. Errors (misuse): not a cache type, a number out of
// range.
Result<runtime::EngineOptions> EngineOptionsFrom(const ModelFlags& flags);
Result<runtime::SessionOptions> SessionOptionsFrom(const ModelFlags& flags);
Result<void> Validate(const ModelFlags& flags);
// Makes the log that the flags ask for, and writes the notes of AddForeignFlags to it.
ConsoleLog MakeLog(const ModelFlags& flags, const std::vector<std::string>& notes);

// Draws the seed, parses the biases (ID+B, ID-B, ID=B; "inf" and "false" are accepted), and bans
// end-of-generation tokens if wanted.
Result<Sampling> SamplingFrom(const SamplerFlags& flags, const Model& model);
// The same for the rooms below the API.
Result<runtime::SamplerConfig> SamplerConfigFrom(const SamplerFlags& flags,
                                                 const tokenizer::Tokenizer& tokenizer);

// Reports a failure during work: one line on stderr. Returns kFailed.
int Fail(const Error& error);
// Reports an invalid command line: one line and where to find help. Returns kMisused.
int Misuse(const std::string& command, const std::string& message);

}  // namespace winnow::apps

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "flags.h"
#include "report/record.h"
#include "runtime/budget/compressor.h"
#include "runtime/session/session.h"
#include "winnow/compression.h"
#include "winnow/model.h"
#include "winnow/session.h"

// How the cache is compressed, as several commands take it.
namespace winnow::apps {

// Of one method; flags that were not given are 0 or empty.
struct KvFlags : Compression {
  KvFlags() { method = "full"; }
  bool has_quality = false;  // whether --kv-quality is a flag of the command
  double equal_bytes = 0;    // share of the full cache's bytes (method_list.h)
  std::optional<std::string> trace;
  bool strict = false;
};

// The group "KV cache". Commands that take several methods (kOwn) add --kv-method and lists of
// budgets themselves; a server's is the default of its requests (kDefault), without the flags that
// belong to one text.
enum class MethodFlag { kOne, kOwn, kDefault };
void AddKvFlags(FlagTable& table, KvFlags& flags, MethodFlag method_flag = MethodFlag::kOne);
constexpr const char* kMethodHelp =
    "how the cache is compressed: METHOD or METHOD:PARAMETER=VALUE,...; 'winnow methods' lists "
    "them";

// Slots, a share of the prompt, or bytes.
void AddBudgetFlags(FlagTable& table, KvFlags& flags, FlagTable::Names size_names = {"--kv-size"},
                    FlagTable::Names ratio_names = {"--kv-ratio"},
                    FlagTable::Names memory_names = {"--kv-memory"});

// A KL divergence, of commands that read prompts in sessions of their own.
void AddQualityFlag(FlagTable& table, KvFlags& flags);

// Tokens of a prompt taken at a time.
void AddChunkFlag(FlagTable& table, KvFlags& flags);

// Errors (misuse), in terms of the flags: no such method or parameter, methods that cannot work
// together, no budget where one is needed, several, below what the method protects.
Result<runtime::CompressionOptions> CompressionOptionsFrom(const KvFlags& flags);

// "a,b:x=1,y=2,c" -> a | b:x=1,y=2 | c: a comma separates parameters where PARAMETER=VALUE follows,
// and methods otherwise. Error: an empty word.
Result<std::vector<std::string>> SplitMethods(std::string_view text);

// Entries per KV head, the mean over layers and heads.
double MeanKept(const Session& session);
double MeanKept(const runtime::Session& session);
// "kv" of the commands' JSON.
report::Record KvRecord(const Session& session);

// Texts longer than what the model was trained for, unless positions are reassigned: an error with
// --strict (loading the model has warned already).
Result<void> CheckTrainedContext(const KvFlags& flags, const Model& model, const Session& session,
                                 int64_t n_tokens);
Result<void> CheckTrainedContext(const KvFlags& flags, runtime::Session& session, int64_t n_tokens);

}  // namespace winnow::apps

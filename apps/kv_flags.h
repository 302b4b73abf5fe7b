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

// Flags for the compression of the cache, shared by several commands.
namespace winnow::apps {

// Flags for one method; flags not given are 0 or empty.
struct KvFlags : Compression {
  KvFlags() { method = "full"; }
  bool has_quality = false;  // the command has the flag --kv-quality
  double equal_bytes = 0;    // share of the full cache's bytes (method_list.h)
  std::optional<std::string> trace;
  bool strict = false;
};

// Adds the group "KV cache". kOwn: a command that takes several methods adds --kv-method and lists
// of budgets itself. kDefault: for a server, whose flags are its requests' default; without the
// flags that apply to one text only.
enum class MethodFlag { kOne, kOwn, kDefault };
void AddKvFlags(FlagTable& table, KvFlags& flags, MethodFlag method_flag = MethodFlag::kOne);
constexpr const char* kMethodHelp =
    "how the cache is compressed: METHOD or METHOD:PARAMETER=VALUE,...; 'winnow methods' lists "
    "them";

// Budgets as slots, as a share of the prompt, or in bytes.
void AddBudgetFlags(FlagTable& table, KvFlags& flags, FlagTable::Names size_names = {"--kv-size"},
                    FlagTable::Names ratio_names = {"--kv-ratio"},
                    FlagTable::Names memory_names = {"--kv-memory"});

// Budget as a KL divergence, for commands that read each prompt in a session of its own.
void AddQualityFlag(FlagTable& table, KvFlags& flags);

// Number of prompt tokens read at a time.
void AddChunkFlag(FlagTable& table, KvFlags& flags);

// Errors (misuse), in terms of the flags: unknown method or parameter; methods that cannot be
// combined; no budget where one is needed; several budgets; one below what the method protects.
Result<runtime::CompressionOptions> CompressionOptionsFrom(const KvFlags& flags);

// "a,b:x=1,y=2,c" -> a | b:x=1,y=2 | c: a comma before PARAMETER=VALUE separates parameters, any
// other comma separates methods. Error: an empty word.
Result<std::vector<std::string>> SplitMethods(std::string_view text);

// Entries per KV head, the mean over layers and heads.
double MeanKept(const Session& session);
double MeanKept(const runtime::Session& session);
// The object "kv" in the commands' JSON.
report::Record KvRecord(const Session& session);

// With --strict an error if the text is longer than the model's trained context, unless positions
// are reassigned. (Without --strict loading has already warned.)
Result<void> CheckTrainedContext(const KvFlags& flags, const Model& model, const Session& session,
                                 int64_t n_tokens);
Result<void> CheckTrainedContext(const KvFlags& flags, runtime::Session& session, int64_t n_tokens);

}  // namespace winnow::apps

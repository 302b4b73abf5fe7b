#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "flags.h"
#include "report/record.h"
#include "runtime/compressor.h"
#include "runtime/session.h"

// How the cache is compressed, as several commands take it.
namespace winnow::apps {

struct KvFlags {
  std::string method = "full";
  int64_t size = 0;          // slots per KV head; 0: not given
  double ratio = 0;          // share of the prompt; 0: not given
  int64_t memory_bytes = 0;  // of the whole cache; 0: not given
  double equal_bytes = 0;    // share of the full cache's bytes; 0: not given (method_list.h)
  std::string decode;        // empty: as the method does
  int64_t prefill_chunk = 0;
  std::optional<std::string> trace;
  bool strict = false;
};

// The group "KV cache". Commands that take several methods add --kv-method and lists of budgets
// themselves.
enum class MethodFlag { kOne, kOwn };
void AddKvFlags(FlagTable& table, KvFlags& flags, MethodFlag method_flag = MethodFlag::kOne);
constexpr const char* kMethodHelp =
    "how the cache is compressed: METHOD or METHOD:PARAMETER=VALUE,...; 'winnow methods' lists "
    "them";

// Slots, a share of the prompt, or bytes.
void AddBudgetFlags(FlagTable& table, KvFlags& flags, FlagTable::Names size_names = {"--kv-size"},
                    FlagTable::Names ratio_names = {"--kv-ratio"},
                    FlagTable::Names memory_names = {"--kv-memory"});

// Tokens of a prompt taken at a time.
void AddChunkFlag(FlagTable& table, KvFlags& flags);

// Errors (misuse), in terms of the flags: no such method or parameter, methods that cannot work
// together, no budget where one is needed, several, below what the method protects.
Result<runtime::CompressionOptions> CompressionOptionsFrom(const KvFlags& flags);

// "256M", "1.5g", "4096": bytes; k, M and G are powers of 1024.
Result<int64_t> ParseBytes(std::string_view text);

// "a,b:x=1,y=2,c" -> a | b:x=1,y=2 | c: a comma separates parameters where PARAMETER=VALUE follows,
// and methods otherwise. Error: an empty word.
Result<std::vector<std::string>> SplitMethods(std::string_view text);

// "snapkv:window=16", or "full".
std::string MethodName(const runtime::Session& session);
// Entries per KV head, the mean over layers and heads.
double MeanKept(const runtime::Session& session);
// "kv" of the commands' JSON.
report::Record KvRecord(const runtime::Session& session);

// Texts longer than what the model was trained for, unless positions are reassigned: an error with
// --strict (loading the model has warned already).
Result<void> CheckTrainedContext(const KvFlags& flags, runtime::Session& session, int64_t n_tokens);

}  // namespace winnow::apps

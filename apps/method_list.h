#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "eval/run/equal_bytes.h"
#include "flags.h"
#include "kv_flags.h"
#include "runtime/budget/compressor.h"

// Flags for several methods and several budgets in one command line.
namespace winnow::apps {

// --kv-method LIST, which can be repeated.
void AddMethodListFlag(FlagTable& table, std::vector<std::string>* methods);

struct BudgetLists {
  std::vector<int64_t> sizes;       // --kv-size
  std::vector<double> ratios;       // --kv-ratio
  std::vector<int64_t> memories;    // --kv-memory
  std::vector<double> equal_bytes;  // --equal-bytes
  std::vector<double> qualities;    // --kv-quality

  bool empty() const {
    return sizes.empty() && ratios.empty() && memories.empty() && equal_bytes.empty() &&
           qualities.empty();
  }
};
// Adds the flags --kv-size, --kv-ratio, --kv-memory and --equal-bytes; each takes a list and can be
// repeated.
void AddBudgetListFlags(FlagTable& table, BudgetLists& lists);
// Adds --kv-quality, for commands that read each prompt in a session of its own.
void AddQualityListFlag(FlagTable& table, BudgetLists& lists, KvFlags& kv);

// Each budget as flags for that budget only, with its name: "size 512", "ratio 0.25", "memory
// 1048576", "equal bytes 0.25", "quality 0.01". Without budgets: one entry without a name.
struct NamedBudget {
  std::string name;
  KvFlags kv;
};
std::vector<NamedBudget> ListBudgets(const BudgetLists& lists, const KvFlags& common);

// Options of a method under the flags' budget. A method that finds its own size gets only a limit
// in bytes, if it can hold one. Errors: those of CompressionOptionsFrom.
Result<runtime::CompressionOptions> OptionsOfMethod(const KvFlags& flags,
                                                    const std::string& method);

// The method under every budget, in the order of the flags; once if it takes none. Empty: the full
// cache. Errors: those of CompressionOptionsFrom.
Result<std::vector<eval::Candidate>> ListCandidates(const std::string& method,
                                                    const BudgetLists& lists,
                                                    const KvFlags& common);

}  // namespace winnow::apps

#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "eval/run/equal_bytes.h"
#include "flags.h"
#include "kv_flags.h"
#include "runtime/budget/compressor.h"

// Several methods, under several budgets, in one command line.
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
// The four flags; each takes a list and can be repeated.
void AddBudgetListFlags(FlagTable& table, BudgetLists& lists);
// --kv-quality, of commands that read prompts in sessions of their own.
void AddQualityListFlag(FlagTable& table, BudgetLists& lists, KvFlags& kv);

// The budgets as flags of one, with what they are called: "size 512", "ratio 0.25", "memory
// 1048576", "equal bytes 0.25", "quality 0.01". Without any: one without a name.
struct NamedBudget {
  std::string name;
  KvFlags kv;
};
std::vector<NamedBudget> ListBudgets(const BudgetLists& lists, const KvFlags& common);

// A method under the budget of the flags. One that finds its own size is given none but a limit in
// bytes, if it can follow one (refreekv). Errors: those of CompressionOptionsFrom.
Result<runtime::CompressionOptions> OptionsOfMethod(const KvFlags& flags,
                                                    const std::string& method);

// A method under every budget, in the order of the flags; once where it has none. Empty: the full
// cache. Errors: those of CompressionOptionsFrom.
Result<std::vector<eval::Candidate>> ListCandidates(const std::string& method,
                                                    const BudgetLists& lists,
                                                    const KvFlags& common);

}  // namespace winnow::apps

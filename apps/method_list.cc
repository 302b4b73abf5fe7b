#include "method_list.h"

#include <algorithm>

#include "compression/registry.h"

namespace winnow::apps {
namespace {

// A flag with a list; repeating it appends.
template <typename T, typename Parse>
void AddList(FlagTable& table, const char* name, const std::string& help, std::vector<T>* target,
             Parse parse) {
  table.Add(
      {{name}, "LIST", help, "", {}, false, [target, parse](std::string_view text) -> Result<void> {
         WINNOW_ASSIGN(const std::vector<std::string> words, ParseWords(text));
         for (const std::string& word : words) {
           WINNOW_ASSIGN(const T value, parse(word));
           target->push_back(value);
         }
         return {};
       }});
}

// Decimal digits without trailing zeros, but at least one digit after the point.
std::string Decimal(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text += '0';
  return text;
}

}  // namespace

void AddMethodListFlag(FlagTable& table, std::vector<std::string>* methods) {
  table.Add({{"--kv-method"},
             "LIST",
             "methods, separated by commas; a comma before PARAMETER=VALUE goes on with the same "
             "method: snapkv,ems:tau=0.6,gamma=4,streaming. Can be repeated",
             "",
             {},
             false,
             [methods](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(const std::vector<std::string> words, SplitMethods(text));
               methods->insert(methods->end(), words.begin(), words.end());
               return {};
             }});
}

void AddBudgetListFlags(FlagTable& table, BudgetLists& lists) {
  AddList(table, "--kv-size", "budgets: entries a KV head of a layer may keep", &lists.sizes,
          ParsePositive);
  AddList(table, "--kv-ratio",
          "budgets: the share of a prompt's entries that stays, such as 0.5,0.25", &lists.ratios,
          ParseShare);
  AddList(table, "--kv-memory",
          "budgets: bytes of the whole cache at any moment, such as 16M; never exceeded; "
          "applies to each cache separately",
          &lists.memories, ParseBytes);
  AddList(table, "--equal-bytes",
          "budgets: the share of the full f16 cache's bytes that the cache takes after the prompt, "
          "such as 0.25. Every method gets the number of entries with which that is so, found by "
          "reading each prompt several times; reading may take more on the way",
          &lists.equal_bytes, ParseShare);
}

void AddQualityListFlag(FlagTable& table, BudgetLists& lists, KvFlags& kv) {
  kv.has_quality = true;
  AddList(table, "--kv-quality",
          "budgets (experimental): for each prompt the smallest whose estimated mean KL divergence "
          "from the full cache, on text after the prompt, is at most this, in nats per token, such "
          "as 0.01",
          &lists.qualities, ParseNats);
}

std::vector<NamedBudget> ListBudgets(const BudgetLists& lists, const KvFlags& common) {
  std::vector<NamedBudget> budgets;
  const auto add = [&](const std::string& name) -> KvFlags& {
    return budgets.emplace_back(NamedBudget{name, common}).kv;
  };
  for (const int64_t size : lists.sizes) add("size " + std::to_string(size)).size = size;
  for (const double ratio : lists.ratios) add("ratio " + Decimal(ratio)).ratio = ratio;
  for (const int64_t bytes : lists.memories) {
    add("memory " + std::to_string(bytes)).memory_bytes = bytes;
  }
  for (const double kl : lists.qualities) add("quality " + Decimal(kl)).quality = kl;
  for (const double share : lists.equal_bytes) {
    add("equal bytes " + Decimal(share)).equal_bytes = share;
  }
  if (budgets.empty()) add("");
  return budgets;
}

Result<runtime::CompressionOptions> OptionsOfMethod(const KvFlags& flags,
                                                    const std::string& method) {
  KvFlags kv = flags;
  kv.method = method;
  const auto made = compression::MakeMethod(method);
  if (!made) return Error{"--kv-method: " + made.error().message};
  if (!(*made)->traits().budget.needed && kv.decode.empty()) {
    kv.size = 0;
    kv.ratio = 0;
    kv.quality = 0;
    // A method that finds its own size treats a budget as a limit, if it can hold one at all.
    if (!(*made)->traits().budget.held) {
      kv.memory_bytes = 0;
      kv.equal_bytes = 0;
    }
  }
  return CompressionOptionsFrom(kv);
}

Result<std::vector<eval::Candidate>> ListCandidates(const std::string& method,
                                                    const BudgetLists& lists,
                                                    const KvFlags& common) {
  std::vector<eval::Candidate> candidates;
  for (const NamedBudget& budget : ListBudgets(lists, common)) {
    WINNOW_ASSIGN(const auto options, OptionsOfMethod(budget.kv, method));
    if (!options.method) return candidates;
    const bool sized =
        options.size > 0 || options.ratio > 0 || options.memory_bytes > 0 || options.quality > 0;
    const bool at_equal_bytes = sized && budget.kv.equal_bytes > 0;
    candidates.push_back({.compression = options,
                          .budget = sized ? budget.name : "",
                          .equal_bytes = at_equal_bytes ? budget.kv.equal_bytes : 0});
    if (!sized) break;  // the same under every budget
  }
  return candidates;
}

}  // namespace winnow::apps

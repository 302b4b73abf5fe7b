#include "eval_flags.h"

#include <algorithm>
#include <utility>

#include "eval/run/configuration.h"
#include "method_list.h"

namespace winnow::apps {
namespace {

// A flag with a list; repeating it appends.
template <typename T, typename Parse>
void AddList(FlagTable& table, FlagTable::Names names, const char* value_name,
             const std::string& help, std::vector<T>* target, Parse parse) {
  table.Add({std::move(names),
             value_name,
             help,
             "",
             {},
             false,
             [target, parse](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(const std::vector<std::string> words, ParseWords(text));
               for (const std::string& word : words) {
                 WINNOW_ASSIGN(const T value, parse(word));
                 target->push_back(value);
               }
               return {};
             }});
}

FlagTable::Names FlagNames(std::string_view option) {
  if (option == "max_tokens") return {"-n", "--predict", "--n-predict"};
  std::string name = "--" + std::string(option);
  std::replace(name.begin(), name.end(), '_', '-');
  return {std::move(name)};
}

// The tasks that have this option ("gsm8k, multiple-choice"); empty if there are many.
std::string FewTasksWith(const std::string& option) {
  constexpr int kFew = 2;
  std::string names;
  int n = 0;
  for (const eval::Task& task : eval::Tasks()) {
    if (eval::FindOption(task, option) == nullptr) continue;
    names += (names.empty() ? "" : ", ") + std::string(task.name);
    ++n;
  }
  return n > kFew ? "" : names;
}

// Adds the options of all tasks, each once. With a task, the options of other tasks are accepted
// but not shown, so that CheckTaskFlags can reject them with a better message.
void AddTaskFlags(FlagTable& table, EvalFlags& flags, const eval::Task* shown) {
  table.Group("Task");
  for (const eval::Task& task : eval::Tasks()) {
    for (const eval::Option& option : task.options) {
      FlagTable::Names names = FlagNames(option.name);
      if (table.Has(names.front())) continue;
      const std::string few = shown == nullptr ? FewTasksWith(option.name) : "";
      table.Add({std::move(names),
                 option.value_name,
                 option.help + (few.empty() ? "" : " (" + few + ")"),
                 "",
                 {},
                 shown != nullptr && eval::FindOption(*shown, option.name) == nullptr,
                 [&flags, option](std::string_view text) -> Result<void> {
                   WINNOW_TRY(option.check(text));
                   flags.given.emplace_back(option.name, text);
                   return {};
                 }});
    }
  }
}

void AddCacheFlags(FlagTable& table, EvalFlags& flags) {
  table.Group("KV cache (every method under every budget, after the full cache)");
  AddMethodListFlag(table, &flags.methods);
  AddBudgetListFlags(table, flags.budgets);
  AddQualityListFlag(table, flags.budgets, flags.model.kv);
  AddList(table, {"--cache-types"}, "LIST",
          "everything for each of these cache types, such as f16,q8_0,q8_0/q4_0 (keys/values); the "
          "first full cache is the reference for the rest",
          &flags.cache_types, eval::ParseText);
  table.Add({"--full-type"}, "TYPE",
            "the type of that full cache, which then comes before all others [the first of "
            "--cache-types]",
            &flags.full_type);
  table.Add({"--kv-decode"}, "SPEC",
            "another method from the first generated token on, for methods that only compress the "
            "prompt",
            &flags.model.kv.decode);
  table.Add({{"--prefill-chunk"},
             "N",
             "tokens of a prompt taken at a time; the cache is compressed after each",
             "",
             {},
             false,
             [&flags](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(flags.model.kv.prefill_chunk, ParsePositive(text));
               return {};
             }});
}

std::string ListText() {
  std::string text = "Tasks:";
  for (const eval::Task& task : eval::Tasks()) text += " " + std::string(task.name);
  return text +
         ". 'winnow eval --list' says what each measures, 'winnow eval TASK --list' what data "
         "it reads and which flags it takes, 'winnow eval TASK --help' what they mean; "
         "docs/eval.md says more.";
}

Result<std::vector<eval::Variant>> VariantsOfMethod(const EvalFlags& flags,
                                                    const std::string& method,
                                                    const runtime::SessionOptions& options) {
  std::vector<eval::Variant> variants;
  WINNOW_ASSIGN(const auto candidates, ListCandidates(method, flags.budgets, flags.model.kv));
  for (const eval::Candidate& candidate : candidates) {
    eval::Variant variant;
    variant.options = options;
    variant.options.compression = candidate.compression;
    variant.method = candidate.compression.method->traits().spec;
    variant.configuration = eval::NormalizeConfiguration(variant.method);
    variant.budget = candidate.budget;
    variant.equal_bytes = candidate.equal_bytes;
    if (candidate.compression.prefill_chunk > 0) {
      variant.budget += (variant.budget.empty() ? "" : ", ") +
                        ("chunks of " + std::to_string(candidate.compression.prefill_chunk));
    }
    variants.push_back(std::move(variant));
  }
  return variants;
}

struct CacheTypes {
  std::string key, value;

  std::string Name() const { return key == value ? key : key + "/" + value; }
};

// Parses "q8_0" or "q8_0/q4_0" (keys/values).
CacheTypes ParseCacheTypes(const std::string& text) {
  const size_t slash = text.find('/');
  const std::string key = text.substr(0, slash);
  return {key, slash == std::string::npos ? key : text.substr(slash + 1)};
}

// The full cache with the given types. Errors (misuse): an unknown type; those of the model's
// flags.
Result<eval::Variant> FullCache(const EvalFlags& flags, const std::string& flag,
                                const std::string& text) {
  const CacheTypes types = ParseCacheTypes(text);
  WINNOW_TRY(ParseCacheType(flag, types.key));
  WINNOW_TRY(ParseCacheType(flag, types.value));
  ModelFlags model = flags.model;
  model.kv = {};
  model.key_type = types.key;
  model.value_type = types.value;
  WINNOW_ASSIGN(const runtime::SessionOptions options, SessionOptionsFrom(model));
  return eval::Variant{.method = "full",
                       .budget = "",
                       .cache_types = types.Name(),
                       .options = options,
                       .configuration = "full"};
}

}  // namespace

std::string FlagFrom(std::string_view option) { return FlagNames(option).front(); }

std::string FlagsFrom(const eval::Task& task) {
  std::string flags;
  for (const eval::Option& option : task.options) flags += " " + FlagFrom(option.name);
  return flags;
}

FlagTable MakeEvalTable(EvalFlags& flags, const eval::Task* task) {
  FlagTable table("eval", "TASK -m FILE --data DIR [--kv-method LIST --kv-ratio LIST] [flags]",
                  "Runs an evaluation under the full cache and under every method and budget, and "
                  "compares them in one table. Reads data sets as they are published, or "
                  "'--data builtin'.");
  AddTaskFlags(table, flags, task);
  AddCacheFlags(table, flags);
  table.Group("Prompt");
  table.Add({"--chat-template"}, "NAME",
            "chat template; empty: the model's own, or plain text if it has none",
            &flags.chat_template);
  table.Switch({"--raw"}, "plain text even for a model with a chat template", &flags.raw);
  table.Add({"-sys", "--system-prompt"}, "TEXT", "system prompt", &flags.system);
  table.Group("Output");
  table.Add(
      {"--results"}, "FILE",
      "every single result as a line of JSON, written as soon as it is computed; results the file "
      "already holds are not computed again, so that the same command continues where it was "
      "interrupted",
      &flags.results);
  table.Add({"--json"}, "FILE", "summary and single results as one JSON object, '-' for stdout",
            &flags.json);
  table.Add({"--report"}, "FILE", "a page with tables and charts (HTML)", &flags.report);
  table.Switch({"--list"}, "say what tasks there are, or more about TASK", &flags.list);
  AddModelFlags(table, flags.model);
  AddLogFlags(table, flags.model);
  AddForeignFlags(table, flags.notes);
  table.Note(ListText());
  return table;
}

Result<void> CheckTaskFlags(const eval::Task& task, const EvalFlags& flags) {
  for (const auto& [name, text] : flags.given) {
    if (eval::FindOption(task, name) != nullptr) continue;
    return Error{"flag " + FlagFrom(name) + " is not used by " + std::string(task.name) +
                 ", which takes" + FlagsFrom(task)};
  }
  return {};
}

Result<std::vector<eval::Variant>> MakeVariants(const EvalFlags& flags) {
  std::vector<eval::Variant> variants;
  if (flags.methods.empty() && (!flags.budgets.empty() || !flags.model.kv.decode.empty() ||
                                flags.model.kv.prefill_chunk > 0)) {
    return Error{"the full cache has no size to choose: name methods with --kv-method"};
  }
  std::vector<std::string> types = flags.cache_types;
  const std::string flag = types.empty() ? "-ctk, -ctv" : "--cache-types";
  if (types.empty()) types = {flags.model.key_type + "/" + flags.model.value_type};
  if (!flags.full_type.empty()) {
    WINNOW_ASSIGN(eval::Variant first, FullCache(flags, "--full-type", flags.full_type));
    variants.push_back(std::move(first));
  }
  for (const std::string& text : types) {
    WINNOW_ASSIGN(const eval::Variant full, FullCache(flags, flag, text));
    if (variants.empty() || full.cache_types != variants.front().cache_types) {
      variants.push_back(full);
    }
    for (const std::string& method : flags.methods) {
      WINNOW_ASSIGN(auto more, VariantsOfMethod(flags, method, full.options));
      for (eval::Variant& variant : more) {
        variant.cache_types = full.cache_types;
        variants.push_back(std::move(variant));
      }
    }
  }
  return variants;
}

}  // namespace winnow::apps

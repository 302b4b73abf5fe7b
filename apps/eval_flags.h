#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/run/runner.h"
#include "eval/tasks/task.h"
#include "method_list.h"
#include "options.h"

// Flags of `winnow eval`.
namespace winnow::apps {

struct EvalFlags {
  ModelFlags model;
  eval::OptionValues given;  // options of the task
  bool list = false;
  std::string chat_template;
  std::string system;
  bool raw = false;
  std::vector<std::string> methods;
  BudgetLists budgets;
  std::vector<std::string> cache_types;
  std::string full_type;  // type of the full cache used as reference; empty: the first
  std::optional<std::string> results;
  std::optional<std::string> json;
  std::optional<std::string> report;
  std::vector<std::string> notes;
};

// With a task, the help shows its options; without one, those of all tasks.
FlagTable MakeEvalTable(EvalFlags& flags, const eval::Task* task);
// The flag of a task's option: "--hide-question" for hide_question.
std::string FlagFrom(std::string_view option);
// " --data --samples --seed": the flags of all its options.
std::string FlagsFrom(const eval::Task& task);
// Error (misuse): a flag that this task does not use.
Result<void> CheckTaskFlags(const eval::Task& task, const EvalFlags& flags);

// The full cache, then every method under every budget, for every cache type. Errors (misuse):
// those of the flags.
Result<std::vector<eval::Variant>> MakeVariants(const EvalFlags& flags);

}  // namespace winnow::apps

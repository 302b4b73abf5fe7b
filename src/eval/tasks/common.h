#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/tasks/data.h"
#include "eval/tasks/task.h"
#include "eval/workloads/choices.h"
#include "eval/workloads/question.h"

// What several tasks share.
namespace winnow::eval {

using WorkloadFactory = std::function<Result<std::unique_ptr<Workload>>()>;

// Error: --data was not given.
Result<void> NeedData(const TaskContext& context, std::string_view expected);
// `all`, or those of `wanted`, in the order of `all`. Error: one is not of them.
Result<std::vector<std::string>> ChooseTasks(const std::vector<std::string>& all,
                                             const std::vector<std::string>& wanted);
// Error: a depth that is no per cent.
Result<void> CheckDepths(const std::vector<int64_t>& depths);
// Whether a list of numbers names this one; an empty list names all.
bool Names(const std::vector<int64_t>& wanted, int64_t number);

// As PromptWriter::Write, but a text that is too long is an error: its middle is what is asked for.
Result<Prompt> FormatWithoutCutting(const PromptWriter& prompts, std::string_view text, Style style,
                                    int64_t n_answer);

// Every `{name}` in a form replaced; names that are not given stay as they are.
std::string FillIn(std::string_view form,
                   const std::vector<std::pair<std::string_view, std::string>>& values);

// "DOCUMENT\n\nQuestion: QUESTION\nAnswer:" for a model without chat template, the document and the
// question as a message for others.
std::string DocumentQuestion(const PromptWriter& prompts, const std::string& document,
                             const std::string& question);

// The number given with a flag, or the default.
inline int64_t Or(int64_t given, int64_t fallback) { return given < 0 ? fallback : given; }

}  // namespace winnow::eval

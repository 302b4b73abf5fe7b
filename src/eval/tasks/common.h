#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/tasks/data.h"
#include "eval/tasks/task.h"
#include "eval/workloads/choices.h"
#include "eval/workloads/document.h"
#include "eval/workloads/question.h"

// Helpers that several tasks share.
namespace winnow::eval {

using WorkloadFactory = std::function<Result<std::unique_ptr<Workload>>()>;

// Gives a task the options of `Options`; `state` sets the fields of its TaskRun other than
// `samples`.
template <class Options>
Task WithOptions(Task task,
                 Result<std::vector<Sample>> (*samples)(const TaskContext&, const Options&),
                 void (*state)(const Options&, TaskRun&) = nullptr) {
  task.options = ListOptions<Options>();
  task.configure = [samples, state](const OptionValues& given) -> Result<TaskRun> {
    WINNOW_ASSIGN(Options read, ReadOptions<Options>(given));
    const auto options = std::make_shared<const Options>(std::move(read));
    TaskRun run;
    run.samples = [samples, options](const TaskContext& context) {
      return samples(context, *options);
    };
    if (state != nullptr) state(*options, run);
    return run;
  };
  return task;
}

// An error that names the option.
Error OptionError(const TaskContext& context, std::string_view option, const std::string& text);
// Error: no data was given.
Result<void> NeedData(const TaskContext& context, const std::string& data,
                      std::string_view expected);
// The names in `wanted`, or all if it is empty, in the order of `all`. Error: an unknown name.
Result<std::vector<std::string>> ChooseTasks(const TaskContext& context,
                                             const std::vector<std::string>& all,
                                             const std::vector<std::string>& wanted);
// Error: a depth outside 0 to 100 per cent.
Result<void> CheckDepths(const TaskContext& context, const std::vector<int64_t>& depths);
// Whether `wanted` contains `number`; an empty list contains every number.
bool Names(const std::vector<int64_t>& wanted, int64_t number);

// As PromptWriter::Write, but a text that is too long is an error: a cut could remove the answer.
Result<Prompt> FormatWithoutCutting(const PromptWriter& prompts, std::string_view text, Style style,
                                    int64_t n_answer);

// The number of tokens of `prompt` before its question, which prompts with other questions share.
// `unasked`: the same text without a question.
Result<int64_t> DocumentTokens(const PromptWriter& prompts, std::string_view unasked,
                               std::span<const TokenId> prompt);
// A workload of questions about one document, whose n_document tokens begin every prompt.
// max_tokens and stop strings are those of the first question.
Document DocumentBeforeQuestions(std::span<const Question> questions, int64_t n_document);

// Replaces every `{name}` in a form; names that are not given stay as they are.
std::string FillIn(std::string_view form,
                   const std::vector<std::pair<std::string_view, std::string>>& values);

// "DOCUMENT\n\nQuestion: QUESTION\nAnswer:" for a model without a chat template; for others the
// document and the question as one message.
std::string DocumentQuestion(const PromptWriter& prompts, const std::string& document,
                             const std::string& question);

}  // namespace winnow::eval

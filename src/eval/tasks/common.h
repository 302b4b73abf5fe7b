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

// What several tasks share.
namespace winnow::eval {

using WorkloadFactory = std::function<Result<std::unique_ptr<Workload>>()>;

// The task whose options are those of `Options`; `state` says what its TaskRun states besides the
// samples.
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

// The error of an option, which it names.
Error OptionError(const TaskContext& context, std::string_view option, const std::string& text);
// Error: no data was given.
Result<void> NeedData(const TaskContext& context, const std::string& data,
                      std::string_view expected);
// `all`, or those of `wanted`, in the order of `all`. Error: one is not of them.
Result<std::vector<std::string>> ChooseTasks(const TaskContext& context,
                                             const std::vector<std::string>& all,
                                             const std::vector<std::string>& wanted);
// Error: a depth that is no per cent.
Result<void> CheckDepths(const TaskContext& context, const std::vector<int64_t>& depths);
// Whether a list of numbers names this one; an empty list names all.
bool Names(const std::vector<int64_t>& wanted, int64_t number);

// As PromptWriter::Write, but a text that is too long is an error: its middle is what is asked for.
Result<Prompt> FormatWithoutCutting(const PromptWriter& prompts, std::string_view text, Style style,
                                    int64_t n_answer);

// Tokens of a `prompt` before its question's first, which prompts with other questions share.
// `unasked`: the same text, which has no question.
Result<int64_t> DocumentTokens(const PromptWriter& prompts, std::string_view unasked,
                               std::span<const TokenId> prompt);
// Questions about one document, which are the first tokens of every prompt. Limits of an answer are
// those of the first.
Document AskedLater(std::span<const Question> questions, int64_t n_document);

// Every `{name}` in a form replaced; names that are not given stay as they are.
std::string FillIn(std::string_view form,
                   const std::vector<std::pair<std::string_view, std::string>>& values);

// "DOCUMENT\n\nQuestion: QUESTION\nAnswer:" for a model without chat template, the document and the
// question as a message for others.
std::string DocumentQuestion(const PromptWriter& prompts, const std::string& document,
                             const std::string& question);

}  // namespace winnow::eval

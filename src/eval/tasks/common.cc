#include "eval/tasks/common.h"

#include <algorithm>

#include "eval/metrics/normalise.h"

namespace winnow::eval {

Error OptionError(const TaskContext& context, std::string_view option, const std::string& text) {
  return Error{context.Word(option) + ": " + text};
}

Result<void> NeedData(const TaskContext& context, const std::string& data,
                      std::string_view expected) {
  if (!data.empty()) return {};
  return Error{"no data: give " + context.Word("data") + " DIR with " + std::string(expected)};
}

Result<std::vector<std::string>> ChooseTasks(const TaskContext& context,
                                             const std::vector<std::string>& all,
                                             const std::vector<std::string>& wanted) {
  if (wanted.empty()) return all;
  for (const std::string& name : wanted) {
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      return OptionError(context, "tasks", "no '" + name + "'; known tasks: " + Join(all, ", "));
    }
  }
  std::vector<std::string> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [&](const std::string& name) {
    return std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  });
  return chosen;
}

Result<void> CheckDepths(const TaskContext& context, const std::vector<int64_t>& depths) {
  for (const int64_t depth : depths) {
    if (depth < 0 || depth > 100) {
      return OptionError(context, "depths",
                         "found " + std::to_string(depth) + ", expected per cent, 0 to 100");
    }
  }
  return {};
}

bool Names(const std::vector<int64_t>& wanted, int64_t number) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), number) != wanted.end();
}

Result<Prompt> FormatWithoutCutting(const PromptWriter& prompts, std::string_view text, Style style,
                                    int64_t n_answer) {
  Prompt prompt;
  WINNOW_ASSIGN(prompt.tokens, prompts.WriteWhole(text, style));
  prompt.n_untruncated = static_cast<int64_t>(prompt.tokens.size());
  if (prompt.n_untruncated > prompts.MaxPromptTokens(n_answer)) {
    return Error{"the prompt is " + std::to_string(prompt.n_untruncated) +
                 " tokens, the context of " + std::to_string(prompts.context()) + " has room for " +
                 std::to_string(prompts.MaxPromptTokens(n_answer)) + " before the answer"};
  }
  return prompt;
}

Result<int64_t> DocumentTokens(const PromptWriter& prompts, std::string_view unasked,
                               std::span<const TokenId> prompt) {
  WINNOW_ASSIGN(const std::vector<TokenId> other, prompts.WriteWhole(unasked, Style::kChat));
  const auto end = std::mismatch(prompt.begin(), prompt.end(), other.begin(), other.end());
  return end.first - prompt.begin();
}

Document DocumentBeforeQuestions(std::span<const Question> questions, int64_t n_document) {
  const Question& first = questions.front();
  const auto begin = first.prompt.tokens.begin();
  Document document;
  document.tokens.assign(begin, begin + n_document);
  document.max_tokens = first.max_tokens;
  document.stop = first.stop;
  for (const Question& question : questions) {
    const auto& tokens = question.prompt.tokens;
    document.questions.push_back({.tokens = {tokens.begin() + n_document, tokens.end()},
                                  .references = question.references,
                                  .score = question.score});
  }
  return document;
}

std::string FillIn(std::string_view form,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string text;
  while (!form.empty()) {
    const size_t open = form.find('{');
    text += form.substr(0, open);
    if (open == std::string_view::npos) break;
    form.remove_prefix(open);
    const auto found = std::find_if(values.begin(), values.end(), [&](const auto& value) {
      return form.substr(1).starts_with(value.first) &&
             form.substr(1 + value.first.size()).starts_with('}');
    });
    if (found == values.end()) {
      text += '{';
      form.remove_prefix(1);
    } else {
      text += found->second;
      form.remove_prefix(found->first.size() + 2);
    }
  }
  return text;
}

std::string DocumentQuestion(const PromptWriter& prompts, const std::string& document,
                             const std::string& question) {
  if (prompts.has_template()) return document + "\n\n" + question;
  return document + "\n\nQuestion: " + question + "\nAnswer:";
}

}  // namespace winnow::eval

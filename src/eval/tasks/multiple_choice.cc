// Questions with lettered options: GPQA, MMLU, QuALITY, OpenBookQA.
#include <algorithm>
#include <cctype>

#include "eval/metrics/option_letter.h"
#include "eval/tasks/common.h"
#include "eval/tasks/multiple_choice_data.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr int64_t kMultipleChoiceMaxTokens = 32;  // [ReFreeKV's repository]
constexpr int64_t kMultipleChoiceShots = 5;       // [MMLU]

// How an option is chosen.
enum class By { kLetter, kText, kGeneration };

Result<By> ParseBy(std::string_view text) {
  if (text == "letter") return By::kLetter;
  if (text == "text") return By::kText;
  if (text == "generation") return By::kGeneration;
  return Error{"found '" + std::string(text) + "', expected letter, text or generation"};
}

struct MultipleChoiceOptions : DataOptions {
  std::vector<std::string> tasks;
  By by = By::kLetter;
  std::optional<int64_t> shots;
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(MultipleChoiceOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitTasks(o.tasks, v);
  v("by", o.by, "WHAT",
    "how an option is chosen: letter or text (by highest probability), generation [letter]",
    ParseBy);
  VisitShots(o.shots, v);
  VisitMaxTokens(o.max_tokens, v);
}

char OptionLetter(size_t option) { return static_cast<char>('A' + option); }

// The question, its options (unless the texts of the answers are scored) and the words before the
// answer.
std::string FormatQuestion(const ChoiceQuestion& question, bool with_options) {
  std::string text = "Question: " + question.question + "\n";
  for (size_t i = 0; with_options && i < question.options.size(); ++i) {
    text += OptionLetter(i) + (". " + question.options[i]) + "\n";
  }
  return text + "Answer:";
}

std::string FormatPrompt(const ChoiceQuestion& question, int64_t n_shots, bool with_options) {
  if (!question.ready_prompt.empty()) return question.ready_prompt;
  std::string text = question.document.empty() ? "" : question.document + "\n\n";
  const auto n_examples = std::min(question.examples.size(), static_cast<size_t>(n_shots));
  for (size_t i = 0; i < n_examples; ++i) {
    const ChoiceQuestion& example = question.examples[i];
    const std::string answer =
        with_options ? std::string(1, OptionLetter(example.right)) : example.options[example.right];
    text += FormatQuestion(example, with_options) + " " + answer + "\n\n";
  }
  return text + FormatQuestion(question, with_options);
}

size_t Largest(std::span<const double> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

Result<std::unique_ptr<Workload>> MakeScored(const TaskContext& context,
                                             const ChoiceQuestion& question,
                                             const std::string& text, bool by_text) {
  Choices choices;
  WINNOW_ASSIGN(choices.prompt,
                context.prompts.Write(text, Style::kChat, kMultipleChoiceMaxTokens));
  std::vector<double> n_bytes;
  for (size_t i = 0; i < question.options.size(); ++i) {
    const std::string answer = by_text ? question.options[i] : std::string(1, OptionLetter(i));
    WINNOW_ASSIGN(auto tokens, context.prompts.Continuation(text, Style::kChat, " " + answer));
    choices.texts.push_back(answer);
    choices.continuations.push_back(std::move(tokens));
    n_bytes.push_back(static_cast<double>(answer.size()));
  }
  choices.references = {choices.texts[question.right]};
  choices.score = [right = question.right, n_bytes, by_text](std::span<const double> log_probs) {
    std::vector<Score> scores = {{"right", Largest(log_probs) == right ? 1.0 : 0.0}};
    if (!by_text) return scores;
    // Normalise by length, as long answers are less likely. [LM evaluation harness: acc_norm]
    std::vector<double> per_byte(log_probs.begin(), log_probs.end());
    for (size_t i = 0; i < per_byte.size(); ++i) per_byte[i] /= n_bytes[i];
    scores.push_back({"right_norm", Largest(per_byte) == right ? 1.0 : 0.0});
    return scores;
  };
  return MakeWorkload(std::move(choices));
}

Result<std::unique_ptr<Workload>> MakeGenerated(const TaskContext& context,
                                                const MultipleChoiceOptions& options,
                                                const ChoiceQuestion& choice,
                                                const std::string& text) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(kMultipleChoiceMaxTokens);
  WINNOW_ASSIGN(question.prompt, context.prompts.Write(text, Style::kChat, question.max_tokens));
  question.stop = {"\nQuestion:"};
  const std::string letter(1, OptionLetter(choice.right));
  question.references = {letter};
  question.score = [letter,
                    last = OptionLetter(choice.options.size() - 1)](const std::string& answer) {
    return std::vector<Score>{{"right", OptionLetters(answer, last) == letter ? 1.0 : 0.0}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context,
                                    const MultipleChoiceOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kMultipleChoiceData));
  WINNOW_ASSIGN(const std::vector<ChoiceQuestion> questions,
                ReadChoiceQuestions(options.data, options.seed));
  const int64_t n_shots = options.shots.value_or(kMultipleChoiceShots);
  std::vector<std::string> names;
  for (const ChoiceQuestion& question : questions) {
    if (std::find(names.begin(), names.end(), question.group) == names.end()) {
      names.push_back(question.group);
    }
  }
  WINNOW_ASSIGN(const std::vector<std::string> wanted, ChooseTasks(context, names, options.tasks));
  std::vector<Sample> samples;
  for (const ChoiceQuestion& question : questions) {
    if (std::find(wanted.begin(), wanted.end(), question.group) == wanted.end()) continue;
    if (options.by == By::kText && !question.ready_prompt.empty()) {
      return Error{context.Word("by") + " text: " + question.id +
                   " is a finished prompt that ends before a letter"};
    }
    samples.push_back(
        {.id = question.id,
         .group = question.group,
         .labels = {},
         .make = [&context, &options, question, n_shots]() -> Result<std::unique_ptr<Workload>> {
           const std::string text = FormatPrompt(question, n_shots, options.by != By::kText);
           if (options.by == By::kGeneration)
             return MakeGenerated(context, options, question, text);
           return MakeScored(context, question, text, options.by == By::kText);
         }});
  }
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task MultipleChoiceTask() {
  return WithOptions<MultipleChoiceOptions>(
      {.name = "multiple-choice",
       .summary = "questions with lettered options, answered by the most probable letter, the most "
                  "probable answer text, or a generated letter",
       .data = kMultipleChoiceData,
       .repeats = "ReFreeKV's GPQA, MMLU and QuALITY; H2O's OpenBookQA",
       .columns = {{.name = "right", .title = "right"},
                   {.name = "right_norm", .title = "right per byte"}}},
      Samples);
}

}  // namespace winnow::eval

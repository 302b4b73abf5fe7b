// Needle in a haystack: a statement hidden in a long text, at every depth and length.
// [gkamradt/LLMTest_NeedleInAHaystack]
#include <algorithm>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "eval/metrics/keywords.h"
#include "eval/metrics/normalise.h"
#include "eval/metrics/rouge.h"
#include "eval/tasks/builtin_text.h"
#include "eval/tasks/codes.h"
#include "eval/tasks/common.h"
#include "eval/tasks/haystack.h"
#include "eval/tasks/tasks.h"
#include "eval/tasks/texts.h"

namespace winnow::eval {
namespace {

constexpr std::string_view kSandwich =
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day.";
constexpr std::string_view kSandwichQuestion = "What is the best thing to do in San Francisco?";
constexpr std::string_view kSandwichAnswer =
    "eat a sandwich and sit in Dolores Park on a sunny day";
constexpr int64_t kSandwichTokens = 50;
constexpr int64_t kCodeTokens = 12;
constexpr int64_t kCodeNeedles = 4;
constexpr int64_t kMaxNeedles = 500;
constexpr std::string_view kNeedleForm = "{document}\n\nQuestion: {question}\nAnswer:";
constexpr std::string_view kCodeForm = "{document}\nQuestion: {question} Answer:";

struct NeedleOptions : DataOptions {
  std::vector<int64_t> lengths, depths;
  std::optional<int64_t> max_tokens, n_needles;
  std::string needle;            // "code", or a custom one, with a question and an answer
  std::string question, answer;  // for a custom needle
  std::string form;              // of a prompt, with {document} and {question}
  bool hide_question = false;
};

template <class Visitor>
void Visit(NeedleOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitLengths(o.lengths, v);
  VisitDepths(o.depths, v);
  VisitMaxTokens(o.max_tokens, v);
  v("needle", o.needle, "TEXT",
    "text to hide: 'code' for codes of things, or a custom sentence; default: the sandwich in "
    "Dolores Park",
    ParseText);
  v("needles", o.n_needles, "N", "codes hidden in a text; the question asks for one [4]",
    ParsePositive);
  v("question", o.question, "TEXT", "question about a custom needle", ParseText);
  v("answer", o.answer, "TEXT", "answer to that question", ParseText);
  v("form", o.form, "TEXT", "a prompt with {document} and {question} in it", ParseText);
  VisitHideQuestion(o.hide_question, v);
}

// The needles of a text, and the question with its answer.
struct NeedleCase {
  std::vector<Needle> needles;  // the first is asked for
  std::string question, answer;
  std::string statement;  // what ROUGE compares the answer with
};

NeedleCase SandwichCase(double depth) {
  return {{{std::string(kSandwich), depth}},
          std::string(kSandwichQuestion),
          std::string(kSandwichAnswer),
          std::string(kSandwich)};
}

NeedleCase CodeCase(double depth, int64_t n_needles, Rng& rng) {
  NeedleCase needle_case;
  std::set<std::string> things;
  while (static_cast<int64_t>(needle_case.needles.size()) < n_needles) {
    const HiddenCode hidden = DrawCode(rng, things);
    const bool asked = needle_case.needles.empty();
    needle_case.needles.push_back({hidden.Statement(), asked ? depth : 100 * rng.Uniform()});
    if (!asked) continue;
    needle_case.question = hidden.Question();
    needle_case.answer = hidden.code;
    needle_case.statement = hidden.code;
  }
  return needle_case;
}

NeedleCase CustomCase(const NeedleOptions& options, double depth) {
  return {{{options.needle, depth}}, options.question, options.answer, options.needle};
}

// By default, the built-in text hides codes, which the bundled model can find.
bool HidesCodes(const NeedleOptions& options) {
  return options.needle == "code" || (options.needle.empty() && options.data == kBuiltin);
}

struct NeedleCell {
  int64_t length = 0, depth = 0, number = 0;
};

class NeedleBuilder {
 public:
  NeedleBuilder(const TaskContext& context, const NeedleOptions& options, std::string hay)
      : context_(context), options_(options), hay_(context.tokenizer, std::move(hay)) {}

  bool codes() const { return HidesCodes(options_); }

  Result<std::unique_ptr<Workload>> Make(const NeedleCell& cell) const {
    const int64_t max_tokens =
        options_.max_tokens.value_or(codes() ? kCodeTokens : kSandwichTokens);
    if (cell.length > context_.context) {
      return Error{"a text of " + std::to_string(cell.length) + " tokens, the context holds " +
                   std::to_string(context_.context)};
    }
    const uint64_t place = static_cast<uint64_t>(cell.number) * 1000003u +
                           static_cast<uint64_t>(cell.length) * 101u +
                           static_cast<uint64_t>(cell.depth);
    Rng rng(options_.seed * 0x9E3779B97F4A7C15u + place);
    // The first text of a cell starts at the beginning of the haystack, as in the original.
    const size_t start = cell.number == 0 ? 0 : rng.Below(hay_.n_sentences());
    const NeedleCase needle_case = MakeCase(static_cast<double>(cell.depth), rng);

    Question question;
    int64_t n_hay = cell.length - max_tokens;
    if (n_hay < 0) {
      return OptionError(context_, "lengths",
                         "a text of " + std::to_string(cell.length) +
                             " tokens has no room for an answer of " + std::to_string(max_tokens));
    }
    std::string document;
    for (int attempt = 0; attempt < 8; ++attempt) {
      document = hay_.Build(n_hay, start, needle_case.needles);
      const std::string text = FormatPrompt(document, needle_case.question);
      WINNOW_ASSIGN(question.prompt.tokens, context_.prompts.WriteWhole(text, Style::kChat));
      question.prompt.n_untruncated = static_cast<int64_t>(question.prompt.tokens.size());
      const int64_t excess = question.prompt.n_untruncated + max_tokens - cell.length;
      if (excess <= 0 && attempt > 0) break;
      n_hay -= excess;
      if (n_hay < 0) {
        return Error{"needles and question alone are longer than " + std::to_string(cell.length) +
                     " tokens"};
      }
    }
    question.max_tokens = max_tokens;
    if (!context_.prompts.has_template()) question.stop = {"\n"};
    question.references = {needle_case.answer};
    question.score = [needle_case](const std::string& answer) {
      return std::vector<Score>{
          {"exact", HasWhole(answer, needle_case.answer) ? 1.0 : 0.0},
          {"contains", FoundFraction(answer, std::span(&needle_case.answer, 1))},
          {"key_words", KeyWordShare(answer, needle_case.needles[0].text, needle_case.question)},
          {"rouge1", Rouge1(answer, needle_case.statement)}};
    };
    if (!options_.hide_question) return MakeWorkload(std::move(question));
    WINNOW_ASSIGN(const int64_t n, DocumentTokens(context_.prompts, FormatPrompt(document, ""),
                                                  question.prompt.tokens));
    return MakeWorkload(DocumentBeforeQuestions({&question, 1}, n));
  }

 private:
  NeedleCase MakeCase(double depth, Rng& rng) const {
    if (codes()) return CodeCase(depth, options_.n_needles.value_or(kCodeNeedles), rng);
    if (options_.needle.empty()) return SandwichCase(depth);
    return CustomCase(options_, depth);
  }

  std::string FormatPrompt(const std::string& document, const std::string& question) const {
    std::string_view form = codes() ? kCodeForm : kNeedleForm;
    if (context_.prompts.has_template()) form = "{document}\n\n{question}";
    if (!options_.form.empty()) form = options_.form;
    return FillIn(form, {{"document", document}, {"question", question}});
  }

  const TaskContext& context_;
  const NeedleOptions& options_;
  Haystack hay_;
};

Result<void> Check(const TaskContext& context, const NeedleOptions& options) {
  const std::string needle = context.Word("needle");
  const bool own = !options.needle.empty() && options.needle != "code";
  if (own && (options.question.empty() || options.answer.empty())) {
    return OptionError(
        context, "needle",
        "a custom needle needs " + context.Word("question") + " and " + context.Word("answer"));
  }
  if (!own && (!options.question.empty() || !options.answer.empty())) {
    return Error{context.Word("question") + " and " + context.Word("answer") +
                 " belong to a custom " + needle};
  }
  if (!HidesCodes(options) && options.n_needles) {
    return OptionError(context, "needles", "several needles need " + needle + " code");
  }
  if (options.n_needles > kMaxNeedles) {
    return OptionError(context, "needles", "expected 1 to " + std::to_string(kMaxNeedles));
  }
  return CheckDepths(context, options.depths);
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const NeedleOptions& options) {
  WINNOW_TRY(Check(context, options));
  WINNOW_TRY(NeedData(context, options.data, kTextData));
  WINNOW_ASSIGN(const std::vector<NamedText> texts, ReadTexts(options.data));
  std::string hay;
  for (const NamedText& text : texts) hay += text.text + "\n";
  const auto maker = std::make_shared<const NeedleBuilder>(context, options, std::move(hay));
  std::vector<int64_t> lengths = options.lengths;
  if (lengths.empty()) {
    for (int64_t i = 1; i <= 4; ++i) lengths.push_back(context.context * i / 4);
  }
  std::vector<int64_t> depths = options.depths;
  if (depths.empty()) {
    for (int64_t i = 0; i < 10; ++i) depths.push_back((100 * i + 4) / 9);
  }
  std::vector<Sample> samples;
  for (const int64_t length : lengths) {
    for (const int64_t depth : depths) {
      for (int64_t i = 0; i < options.n_samples.value_or(1); ++i) {
        const std::string group = std::to_string(length) + "/" + std::to_string(depth) + "%";
        samples.push_back(
            {.id = group + "/" + std::to_string(i),
             .group = group,
             .labels = {{"length", length}, {"depth", depth}},
             .make = [maker, cell = NeedleCell{length, depth, i}] { return maker->Make(cell); }});
      }
    }
  }
  return samples;
}

}  // namespace

Task NeedleTask() {
  return WithOptions<NeedleOptions>(
      {.name = "needle",
       .summary = "a statement hidden in a long text, at every depth and length",
       .data = kTextData,
       .repeats = "the needle tests of EMS, D2O and HBW-KV",
       .columns = {{.name = "exact", .title = "exact"},
                   {.name = "contains", .title = "contains"},
                   {.name = "key_words", .title = "key words"},
                   {.name = "rouge1", .title = "ROUGE-1"}}},
      Samples);
}

}  // namespace winnow::eval

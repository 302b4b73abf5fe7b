// A pass key among repeated sentences: the simplest test of what a cache still holds.
// [Landmark Attention, arXiv:2305.16300, section 4.2]
#include <memory>
#include <string>

#include "base/rng.h"
#include "eval/metrics/keywords.h"
#include "eval/tasks/common.h"
#include "eval/tasks/haystack.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr std::string_view kFiller =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n";
constexpr std::string_view kPasskeyForm =
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I "
    "will quiz you about the important information there.\n\n{document}\n\nWhat is the pass key? "
    "The pass key is";

struct PasskeyOptions : SampleOptions {
  std::vector<int64_t> lengths, depths;
  int64_t max_tokens = 12;  // of the answer
};

template <class Visitor>
void Visit(PasskeyOptions& o, Visitor& v) {
  VisitSamples(o, v);
  VisitLengths(o.lengths, v);
  VisitDepths(o.depths, v);
  VisitMaxTokens(o.max_tokens, v);
}

struct PasskeyCell {
  int64_t length = 0;  // in tokens, including the answer
  int64_t depth = 0;   // per cent
  int64_t number = 0;
};

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const PasskeyOptions& options,
                                       const Haystack& hay, const PasskeyCell& cell) {
  Rng rng(options.seed * 1000003 + static_cast<uint64_t>(cell.length * 101 + cell.depth) * 1009 +
          static_cast<uint64_t>(cell.number));
  const std::string key = std::to_string(10000 + rng.Below(90000));
  const Needle needle = {"The pass key is " + key + ". Remember it. " + key + " is the pass key.",
                         static_cast<double>(cell.depth)};
  Question question;
  question.max_tokens = options.max_tokens;
  // Shrink the filler until the prompt has its length.
  const int64_t n_prompt = cell.length - question.max_tokens;
  for (int64_t n_filler = n_prompt; question.prompt.tokens.empty();) {
    if (n_filler < 0) {
      return OptionError(
          context, "lengths",
          std::to_string(cell.length) +
              " tokens have no room for the pass key, the question and an answer of " +
              std::to_string(question.max_tokens));
    }
    const std::string text = FillIn(kPasskeyForm, {{"document", hay.Build(n_filler, 0, {needle})}});
    WINNOW_ASSIGN(std::vector<TokenId> tokens, context.prompts.WriteWhole(text, Style::kChat));
    const auto n = static_cast<int64_t>(tokens.size());
    if (n > n_prompt) {
      n_filler -= n - n_prompt;
      continue;
    }
    question.prompt.n_untruncated = n;
    question.prompt.tokens = std::move(tokens);
  }
  question.references = {key};
  question.score = [key](const std::string& answer) {
    return std::vector<Score>{{"exact", HasWhole(answer, key) ? 1.0 : 0.0}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const PasskeyOptions& options) {
  WINNOW_TRY(CheckDepths(context, options.depths));
  std::vector<int64_t> lengths = options.lengths;
  if (lengths.empty()) lengths = {context.context / 4, context.context / 2, context.context};
  std::vector<int64_t> depths = options.depths;
  if (depths.empty()) depths = {0, 25, 50, 75, 100};
  const auto hay = std::make_shared<const Haystack>(context.tokenizer, std::string(kFiller));
  std::vector<Sample> samples;
  for (const int64_t length : lengths) {
    for (const int64_t depth : depths) {
      const std::string group = std::to_string(length) + "/" + std::to_string(depth) + "%";
      for (int64_t i = 0; i < options.n_samples.value_or(1); ++i) {
        samples.push_back({.id = group + "/" + std::to_string(i),
                           .group = group,
                           .labels = {{"length", length}, {"depth", depth}},
                           .make = [&context, &options, hay, cell = PasskeyCell{length, depth, i}] {
                             return Make(context, options, *hay, cell);
                           }});
      }
    }
  }
  return samples;
}

}  // namespace

Task PasskeyTask() {
  return WithOptions<PasskeyOptions>(
      {.name = "passkey",
       .summary = "five digits hidden among sentences that repeat, at every depth and length",
       .data = "nothing",
       .repeats = "Landmark Attention, Section 4.2",
       .columns = {{.name = "exact", .title = "exact"}}},
      Samples);
}

}  // namespace winnow::eval

// Facts stated once and asked for at the end: five kinds of synthetic documents, so that methods
// can be compared without a download. The bundled model can answer them.
#include <algorithm>
#include <array>

#include "eval/metrics/keywords.h"
#include "eval/tasks/builtin_text.h"
#include "eval/tasks/common.h"
#include "eval/tasks/recall_documents.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kRecallData = "nothing, or builtin: documents are generated from the seed";
constexpr int64_t kSamples = 10;          // per part
constexpr int64_t kRecallMaxTokens = 16;  // of an answer
constexpr int64_t kMargin = 48;           // reserved for question and template, beside the document
constexpr int64_t kDefaultLength = 512;

struct RecallOptions : DataOptions {
  std::vector<std::string> tasks;
  std::vector<int64_t> lengths, depths;
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(RecallOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitTasks(o.tasks, v);
  VisitLengths(o.lengths, v);
  VisitDepths(o.depths, v);
  VisitMaxTokens(o.max_tokens, v);
}

struct RecallCell {
  RecallKind kind = RecallKind::kNeedle;
  int64_t length = 0, depth = -1, number = 0;
};

Result<std::vector<TokenId>> Tokenize(const TaskContext& context, const RecallDocument& document) {
  if (!document.messages.empty()) {
    WINNOW_ASSIGN(const auto text, context.prompts.Converse(document.messages));
    return context.tokenizer.EncodeMarked(text);
  }
  if (!document.continued.empty()) {
    return context.prompts.WriteWhole(document.continued, Style::kPlain);
  }
  return context.prompts.WriteWhole(
      DocumentQuestion(context.prompts, document.document, document.question), Style::kChat);
}

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const RecallOptions& options,
                                       const RecallCell& cell) {
  const int64_t max_tokens = options.max_tokens.value_or(kRecallMaxTokens);
  const int64_t n_document = cell.length - max_tokens - kMargin;
  if (n_document < kMargin) {
    return OptionError(context, "lengths",
                       "a text of " + std::to_string(cell.length) +
                           " tokens has no room for a document; expected " +
                           std::to_string(max_tokens + 2 * kMargin) + " or more");
  }
  const std::array<uint64_t, 5> parts = {
      options.seed, static_cast<uint64_t>(cell.kind), static_cast<uint64_t>(cell.length),
      static_cast<uint64_t>(cell.depth + 1), static_cast<uint64_t>(cell.number)};
  uint64_t seed = 0;
  for (const uint64_t part : parts) seed = Rng(seed * 0x9E3779B97F4A7C15u + part).Next();
  Rng rng(seed);
  const RecallDocument document = MakeRecallDocument(
      cell.kind, n_document, static_cast<double>(cell.depth), context.tokenizer, rng);
  Question question;
  WINNOW_ASSIGN(question.prompt.tokens, Tokenize(context, document));
  question.prompt.n_untruncated = static_cast<int64_t>(question.prompt.tokens.size());
  question.max_tokens = max_tokens;
  if (question.prompt.n_untruncated + max_tokens > context.context) {
    return Error{"a text of " + std::to_string(question.prompt.n_untruncated) +
                 " tokens and an answer of " + std::to_string(max_tokens) + ", the context holds " +
                 std::to_string(context.context)};
  }
  if (!context.prompts.has_template() || !document.continued.empty()) question.stop = {"\n"};
  question.references = {document.answer};
  question.score = [wanted = document.answer](const std::string& answer) {
    return std::vector<Score>{{"exact", HasWhole(answer, wanted) ? 1.0 : 0.0}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const RecallOptions& options) {
  if (!options.data.empty() && options.data != kBuiltin) {
    return OptionError(context, "data",
                       "found '" + options.data +
                           "'; recall generates its documents: leave it out, or " +
                           context.Word("data") + " builtin");
  }
  WINNOW_TRY(CheckDepths(context, options.depths));
  const std::vector<std::string> all(std::begin(kRecallKinds), std::end(kRecallKinds));
  WINNOW_ASSIGN(const std::vector<std::string> chosen, ChooseTasks(context, all, options.tasks));
  std::vector<int64_t> lengths = options.lengths;
  if (lengths.empty()) lengths = {std::min(context.context, kDefaultLength)};
  std::vector<int64_t> depths = options.depths;
  if (depths.empty()) depths = {-1};
  std::vector<Sample> samples;
  for (const int64_t length : lengths) {
    for (size_t kind = 0; kind < all.size(); ++kind) {
      if (std::find(chosen.begin(), chosen.end(), all[kind]) == chosen.end()) continue;
      for (const int64_t depth : depths) {
        std::string group = all[kind];
        report::Record labels = {{"task", all[kind]}, {"length", length}};
        if (lengths.size() > 1) group += "/" + std::to_string(length);
        if (depth >= 0) {
          group += "/" + std::to_string(depth) + "%";
          labels.Add("depth", depth);
        }
        for (int64_t i = 0; i < options.n_samples.value_or(kSamples); ++i) {
          const RecallCell cell = {static_cast<RecallKind>(kind), length, depth, i};
          samples.push_back(
              {.id = all[kind] + "/" + std::to_string(length) +
                     (depth >= 0 ? "/" + std::to_string(depth) + "%" : "") + "/" +
                     std::to_string(i),
               .group = group,
               .labels = labels,
               .make = [&context, &options, cell] { return Make(context, options, cell); }});
        }
      }
    }
  }
  return samples;
}

}  // namespace

Task RecallTask() {
  return WithOptions<RecallOptions>(
      {.name = "recall",
       .summary = "facts, key-values, two hops, few-shot labels and dialogues, asked for at the "
                  "end of generated documents",
       .data = kRecallData,
       .repeats = "none; a first comparison that needs no data and that the bundled model answers",
       .columns = {{.name = "exact", .title = "exact"}}},
      Samples);
}

}  // namespace winnow::eval

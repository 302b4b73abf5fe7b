// MT-Bench: two-turn questions; the answers are written out for a judge. [arXiv:2306.05685]
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"
#include "eval/workloads/conversation.h"

namespace winnow::eval {
namespace {

constexpr const char* kMtBenchData =
    "question.jsonl as lm-sys/FastChat publishes it (question_id, category, turns; one object per "
    "line)";
constexpr int64_t kMtBenchMaxTokens = 1024;  // [FastChat's gen_model_answer]

struct MtBenchOptions : DataOptions {
  std::string answers;  // folder
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(MtBenchOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitMaxTokens(o.max_tokens, v);
  v("answers", o.answers, "DIR",
    "also write conversations as FastChat's judge reads them, a file for every way of keeping the "
    "cache",
    ParseText, FileUse::kWritesFolder);
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const MtBenchOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kMtBenchData));
  const auto path = FindIn(options.data, {"question.jsonl"});
  if (!path) return Missing(options.data, kMtBenchData);
  WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(*path));
  std::vector<Sample> samples;
  for (const Row& row : rows) {
    Conversation conversation;
    WINNOW_ASSIGN(conversation.messages, row.Texts("turns"));
    if (conversation.messages.empty()) return row.FormatError("turns", "at least one message");
    conversation.max_tokens = options.max_tokens.value_or(kMtBenchMaxTokens);
    WINNOW_ASSIGN(const int64_t id, row.Number("question_id"));
    WINNOW_ASSIGN(const std::string category, row.Text("category"));
    samples.push_back({.id = std::to_string(id),
                       .group = category,
                       .labels = {},
                       .number = id,
                       .make = [&context, conversation]() -> Result<std::unique_ptr<Workload>> {
                         return MakeWorkload(conversation, context.prompts, context.tokenizer);
                       }});
  }
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task MtBenchTask() {
  return WithOptions<MtBenchOptions>(
      {.name = "mt-bench",
       .summary = "conversations of two turns over one cache; answers are written out, not scored",
       .data = kMtBenchData,
       .repeats = "D2O's MT-bench demonstration",
       .columns = {{.name = "answer_tokens",
                    .title = "answer tokens",
                    .kind = Column::Kind::kMean,
                    .digits = 1,
                    .relative = false},
                   {.name = "tokens_per_second",
                    .title = "tokens/s",
                    .kind = Column::Kind::kMean,
                    .relative = false}}},
      Samples, [](const MtBenchOptions& options, TaskRun& run) { run.answers = options.answers; });
}

}  // namespace winnow::eval

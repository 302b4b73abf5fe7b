// LongBench's 21 tasks: English, code and Chinese. [arXiv:2308.14508; protocol of its pred.py and
// eval.py]
#include <algorithm>
#include <memory>

#include "eval/metrics/chinese.h"
#include "eval/metrics/class_match.h"
#include "eval/metrics/edit_similarity.h"
#include "eval/metrics/jieba.h"
#include "eval/metrics/number_match.h"
#include "eval/metrics/qa_f1.h"
#include "eval/metrics/rouge.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kLongBenchData =
    "TASK.jsonl as THUDM/LongBench publishes them (input, context, answers, all_classes; one "
    "object "
    "per line), and its dataset2prompt.json, in the same directory or in config/";

struct LongBenchOptions : DataOptions {
  std::vector<std::string> tasks;
  std::string jieba;  // folder of the Python package, for Chinese words
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(LongBenchOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitTasks(o.tasks, v);
  v("jieba", o.jieba, "DIR", "PyPI's package jieba, whose words Chinese F1 and ROUGE-L compare",
    ParseText, FileUse::kReads);
  VisitMaxTokens(o.max_tokens, v);
}

enum class Metric {
  kQaF1,
  kRougeL,
  kClass,
  kCount,
  kRetrieval,
  kCode,
  kChineseQaF1,
  kChineseRougeL,
  kChineseRetrieval
};

struct Part {
  const char* name;
  Metric metric;
  int64_t max_tokens;
  bool few_shot = false;  // no chat template: examples or code to continue
  bool chinese = false;   // runs only if it is named
};

constexpr Part kParts[] = {
    {"narrativeqa", Metric::kQaF1, 128},
    {"qasper", Metric::kQaF1, 128},
    {"multifieldqa_en", Metric::kQaF1, 64},
    {"hotpotqa", Metric::kQaF1, 32},
    {"2wikimqa", Metric::kQaF1, 32},
    {"musique", Metric::kQaF1, 32},
    {"gov_report", Metric::kRougeL, 512},
    {"qmsum", Metric::kRougeL, 512},
    {"multi_news", Metric::kRougeL, 512},
    {"trec", Metric::kClass, 64, true},
    {"triviaqa", Metric::kQaF1, 32, true},
    {"samsum", Metric::kRougeL, 128, true},
    {"passage_count", Metric::kCount, 32},
    {"passage_retrieval_en", Metric::kRetrieval, 32},
    {"lcc", Metric::kCode, 64, true},
    {"repobench-p", Metric::kCode, 64, true},
    {"multifieldqa_zh", Metric::kChineseQaF1, 64, false, true},
    {"dureader", Metric::kChineseRougeL, 128, false, true},
    {"vcsum", Metric::kChineseRougeL, 512, false, true},
    {"lsht", Metric::kClass, 64, true, true},
    {"passage_retrieval_zh", Metric::kChineseRetrieval, 32, false, true},
};

bool NeedsJieba(Metric metric) {
  return metric == Metric::kChineseQaF1 || metric == Metric::kChineseRougeL;
}

struct Record {
  std::string input, context;
  std::vector<std::string> answers, classes;
};

// jieba: null if the metric needs none.
double ScoreOne(Metric metric, const Jieba* jieba, std::string_view answer,
                const std::string& reference, std::span<const std::string> classes) {
  switch (metric) {
    case Metric::kQaF1:
      return QaF1(answer, reference);
    case Metric::kRougeL:
      return RougeL(answer, reference);
    case Metric::kClass:
      return ClassMatch(answer, reference, classes);
    case Metric::kCount:
      return NumberMatch(answer, reference);
    case Metric::kRetrieval:
      return NumberMatch(answer, ParagraphNumber(reference));
    case Metric::kCode:
      return EditSimilarity(FirstCodeLine(answer), reference);
    case Metric::kChineseQaF1:
      return ChineseQaF1(*jieba, answer, reference);
    case Metric::kChineseRougeL:
      return ChineseRougeL(*jieba, answer, reference);
    case Metric::kChineseRetrieval:
      return NumberMatch(answer, ChineseParagraphNumber(reference));
  }
  return 0;
}

double ScoreAnswer(const Part& part, const Jieba* jieba, std::string_view answer,
                   const Record& record) {
  if (part.few_shot && part.metric != Metric::kCode) {
    // Models continue a few-shot prompt with another example: only the first line is the answer.
    answer.remove_prefix(std::min(answer.find_first_not_of('\n'), answer.size()));
    answer = answer.substr(0, answer.find('\n'));
  }
  const auto score = [&](std::string_view text, const std::string& reference) {
    return ScoreOne(part.metric, jieba, text, reference, record.classes);
  };
  return MaxOverReferences(score, answer, record.answers);
}

using SharedJieba = std::shared_ptr<const Jieba>;

struct LongBenchTest {
  Part part;
  std::string form;
  SharedJieba jieba;
  Record record;
};

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const LongBenchOptions& options,
                                       const LongBenchTest& test) {
  const auto& [part, form, jieba, record] = test;
  const int64_t max_tokens = options.max_tokens.value_or(part.max_tokens);
  const std::string text = FillIn(form, {{"context", record.context}, {"input", record.input}});
  Question question;
  const Style style = part.few_shot ? Style::kPlain : Style::kChat;
  WINNOW_ASSIGN(question.prompt, context.prompts.Write(text, style, max_tokens));
  question.max_tokens = max_tokens;
  if (std::string_view(part.name) == "samsum") question.stop = {"\n"};
  question.references = record.answers;
  question.score = [test](const std::string& answer) {
    return std::vector<Score>{
        {"score", ScoreAnswer(test.part, test.jieba.get(), answer, test.record)}};
  };
  return MakeWorkload(std::move(question));
}

Result<Record> ReadRecord(const Row& row) {
  Record record;
  WINNOW_ASSIGN(record.input, row.Text("input"));
  WINNOW_ASSIGN(record.context, row.Text("context"));
  WINNOW_ASSIGN(record.answers, row.Texts("answers"));
  const report::Value* classes = row.record().Find("all_classes");
  if (classes != nullptr && std::holds_alternative<report::List>(classes->data)) {
    WINNOW_ASSIGN(record.classes, row.Texts("all_classes"));
  }
  return record;
}

// The parts that are named; without names, the English and code tasks, as in the papers' tables.
Result<std::vector<const Part*>> ChooseParts(const TaskContext& context,
                                             const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const Part& part : kParts) all.emplace_back(part.name);
  WINNOW_ASSIGN(const std::vector<std::string> wanted, ChooseTasks(context, all, names));
  std::vector<const Part*> parts;
  for (const Part& part : kParts) {
    const bool named = std::find(wanted.begin(), wanted.end(), part.name) != wanted.end();
    if (named && !(names.empty() && part.chinese)) parts.push_back(&part);
  }
  return parts;
}

// Null if no part needs it.
Result<SharedJieba> JiebaFor(const TaskContext& context, const std::vector<const Part*>& parts,
                             const std::string& folder) {
  const auto part =
      std::find_if(parts.begin(), parts.end(), [](const Part* p) { return NeedsJieba(p->metric); });
  if (part == parts.end()) return SharedJieba();
  if (folder.empty()) {
    const char* metric = (*part)->metric == Metric::kChineseQaF1 ? "F1" : "ROUGE-L";
    return Error{context.Word("tasks") + " " + (*part)->name + ": its score, Chinese " + metric +
                 ", needs jieba's words: run '" + kInstallJieba + "' and give " +
                 context.Word("jieba") + " DIR/jieba, or leave the task out (lsht and " +
                 "passage_retrieval_zh need no jieba)"};
  }
  WINNOW_ASSIGN(Jieba jieba, Jieba::Open(folder));
  return std::make_shared<const Jieba>(std::move(jieba));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const LongBenchOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kLongBenchData));
  const std::string& data = options.data;
  const auto forms_path = FindIn(data, {"dataset2prompt.json", "config/dataset2prompt.json"});
  if (!forms_path) {
    return Missing(data,
                   "dataset2prompt.json, the prompts of the tasks (LongBench publishes it in "
                   "its folder config)");
  }
  WINNOW_ASSIGN(const Row forms, ReadJsonObject(*forms_path));
  WINNOW_ASSIGN(const std::vector<const Part*> parts, ChooseParts(context, options.tasks));
  WINNOW_ASSIGN(const SharedJieba jieba, JiebaFor(context, parts, options.jieba));
  std::vector<Sample> samples;
  for (const Part* chosen : parts) {
    const Part& part = *chosen;
    const auto path = FindIn(
        data, {std::string(part.name) + ".jsonl", "data/" + std::string(part.name) + ".jsonl"});
    if (!path)
      return Missing(data, std::string(part.name) + ".jsonl (LongBench, one object per line)");
    WINNOW_ASSIGN(const std::string form, forms.Text(part.name));
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(*path));
    for (size_t i = 0; i < rows.size(); ++i) {
      WINNOW_ASSIGN(Record record, ReadRecord(rows[i]));
      LongBenchTest test = {part, form, jieba, std::move(record)};
      samples.push_back({.id = part.name + ("/" + std::to_string(i)),
                         .group = part.name,
                         .labels = {},
                         .make = [&context, &options, test = std::move(test)] {
                           return Make(context, options, test);
                         }});
    }
  }
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task LongBenchTask() {
  return WithOptions<LongBenchOptions>(
      {.name = "longbench",
       .summary =
           "question answering, summaries, few-shot, retrieval and code in long texts: 21 "
           "tasks, each with its own prompt and metric; the 5 Chinese ones where they are named",
       .data = kLongBenchData,
       .repeats = "LongBench tables of TreeKV, D2O, HBW-KV, EMS; part of ReFreeKV's",
       .columns = {{.name = "score", .title = "score"}}},
      Samples);
}

}  // namespace winnow::eval

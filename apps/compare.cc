#include "eval/run/compare.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "build.h"
#include "chat/document.h"
#include "command_files.h"
#include "commands.h"
#include "compare_report.h"
#include "document.h"
#include "interrupt.h"
#include "load.h"
#include "method_list.h"
#include "options.h"
#include "report/record.h"
#include "result_warnings.h"
#include "table.h"
#include "text_input.h"

namespace winnow::apps {
namespace {

struct CompareFlags {
  ModelFlags model;
  TextSource document;
  std::string question;
  std::string system;
  std::string chat_template;
  std::string expected;
  std::vector<std::string> methods;
  BudgetLists budgets;
  int64_t n_predict = 64;
  bool raw = false;
  bool json = false;
  std::optional<std::string> report;
  std::vector<std::string> notes;
};

FlagTable MakeTable(CompareFlags& flags) {
  FlagTable table(
      "compare", "[-m FILE] -f FILE -q QUESTION --kv-method LIST --kv-size LIST [flags]",
      "Answers a question on a document under the full cache and under each method, and says what "
      "each cost and how far it is from the full cache. Answers are greedy; the KL divergence is "
      "that of the next-token distributions along the full cache's answer. Times are of one run; "
      "'winnow bench' measures them.");
  table.Group("Text");
  table.Add({"-f", "--file"}, "FILE", "the document, '-' for standard input", &flags.document.file);
  table.Add({"-p", "--prompt"}, "TEXT", "the document itself", &flags.document.text);
  AddRawTextFlag(table, flags.document);
  table.Add({"-q", "--question"}, "TEXT", "what is asked, after the document", &flags.question);
  table.Add({"-a", "--answer"}, "TEXT",
            "the right answer: says which answers have it, and where it stands in the document. "
            "Without it answers are held against the full cache's",
            &flags.expected);
  table.Add({"-sys", "--system-prompt"}, "TEXT", "what the model is told beforehand",
            &flags.system);
  table.Add({"--chat-template"}, "NAME",
            "how the question is written down; empty: as the model's file says",
            &flags.chat_template);
  table.Switch({"--raw"},
               "no chat template: the document, a line feed, the question. This is what is done "
               "where the model's file has no template",
               &flags.raw);
  table.Add({"-n", "--predict", "--n-predict"}, "N", "tokens of an answer at most",
            &flags.n_predict);
  table.Switch({"--json"}, "one JSON object on stdout", &flags.json);
  table.Add({"--report"}, "FILE",
            "a page with the answers, what they cost and what each cache kept of the text (HTML); "
            "figures and data also as files beside it",
            &flags.report);
  AddModelFlags(table, flags.model);
  table.Group("KV cache");
  AddMethodListFlag(table, &flags.methods);
  AddBudgetListFlags(table, flags.budgets);
  AddKvFlags(table, flags.model.kv, MethodFlag::kOwn);
  AddLogFlags(table, flags.model, {"--quiet", "--log-disable"});  // -q is the question
  AddForeignFlags(table, flags.notes);
  return table;
}

Result<std::vector<eval::Candidate>> ListCandidates(const CompareFlags& flags) {
  std::vector<eval::Candidate> all;
  for (const std::string& method : flags.methods) {
    WINNOW_ASSIGN(const auto own, ListCandidates(method, flags.budgets, flags.model.kv));
    all.insert(all.end(), own.begin(), own.end());  // none of the full cache, the first row anyway
  }
  if (ListBudgets(flags.budgets, {}).size() == 1) {
    for (eval::Candidate& candidate : all) candidate.budget.clear();
  }
  return all;
}

Result<std::vector<runtime::TokenId>> MakePrompt(const CompareFlags& flags, const Loaded& loaded,
                                                 Log& log) {
  const runtime::Session& session = *loaded.session;
  WINNOW_ASSIGN(std::string document, ReadText(flags.document, log));
  WINNOW_TRY(CheckTextSize(*loaded.model, session.capacity(), document));
  const runtime::Engine& engine = session.engine();
  if (!flags.document.text) document = WithoutFinalNewline(std::move(document));
  const tokenizer::Tokenizer& tokenizer = engine.tokenizer();
  WINNOW_ASSIGN(const auto source, engine.file().String("tokenizer.chat_template"));
  if (flags.raw || (flags.chat_template.empty() && source.value_or("").empty())) {
    const tokenizer::MarkedText text = {document + "\n" + flags.question, true};
    return tokenizer.EncodeMarked(std::span(&text, 1));
  }
  WINNOW_ASSIGN(const auto chat_template, ChooseTemplate(flags.chat_template, engine.file(), log));
  WINNOW_ASSIGN(chat::DocumentPrompt prompt,
                chat::DocumentQuestion(chat_template, flags.system, document, flags.question));
  prompt.document.insert(prompt.document.end(), prompt.question.begin(), prompt.question.end());
  return tokenizer.EncodeMarked(prompt.document);
}

// Answers as one line each.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

report::Record AnswerRow(const eval::Answer& answer, bool is_base, bool has_budgets,
                         const std::string& expected) {
  report::Record row = {{"method", answer.method}};
  if (has_budgets) row.Add("budget", answer.budget);
  if (!expected.empty()) row.Add("right", HasAnswer(answer.text, expected) ? "yes" : "no");
  row.Add("kept", Fixed(answer.kept, 1));
  row.Add("cache", HumanBytes(answer.cache_bytes));
  row.Add("with lists", HumanBytes(answer.cache_bytes_with_lists));
  row.Add("of full f16", ShareText(answer));
  const auto& against = answer.against_full;
  row.Add("KLD", is_base ? "" : Fixed(against.kld().mean(), 5));
  row.Add("same top", is_base ? "" : Fixed(100 * against.same_top().mean(), 1) + " %");
  row.Add("first token ms", Fixed(answer.first_token_ms, 1));
  row.Add("tokens/s", Fixed(answer.tokens_per_second, 1));
  return row;
}

void PrintAnswers(std::span<const eval::Answer> answers, const std::string& expected) {
  std::vector<report::Record> rows;
  const bool has_budgets = HasBudgets(answers);
  bool exceeds = false;
  size_t width = 0;
  for (const eval::Answer& answer : answers) {
    rows.push_back(AnswerRow(answer, rows.empty(), has_budgets, expected));
    exceeds |= ShareText(answer).ends_with(")");
    width = std::max(width, ToString(answer).size());
  }
  PrintTable(rows, has_budgets ? 2 : 1);
  Print("\nTimes are of one run: 'winnow bench' measures speed.\n");
  if (exceeds) Print(std::string(kExceedsNote) + "\n");
  Print("\n");
  for (const eval::Answer& answer : answers) {
    std::string name = ToString(answer) + ":";
    name.resize(width + 2, ' ');
    Print(name + OneLine(answer.text) + AnswerMark(answer, answers.front(), expected) + "\n");
  }
}

report::Record ToRecord(const eval::Answer& answer, bool is_base, const std::string& expected) {
  const runtime::CacheParts& parts = answer.cache_parts;
  report::Record record = {{"method", answer.method},
                           {"budget", answer.budget},
                           {"answer", answer.text},
                           {"tokens", report::MakeList(answer.tokens)},
                           {"first_token_ms", answer.first_token_ms},
                           {"tokens_per_second", answer.tokens_per_second},
                           {"seen", answer.n_seen},
                           {"kept", report::CountOrMean(answer.kept)},
                           {"cache_bytes", answer.cache_bytes},
                           {"cache_bytes_with_lists", answer.cache_bytes_with_lists},
                           {"cache_bytes_full_f16", answer.cache_bytes_full_f16},
                           {"cache_parts", report::Record{{"key_bytes", parts.key_bytes},
                                                          {"value_bytes", parts.value_bytes},
                                                          {"method_bytes", parts.method_bytes},
                                                          {"list_bytes", parts.list_bytes}}}};
  if (!expected.empty()) record.Add("right", HasAnswer(answer.text, expected));
  if (is_base) return record;
  const eval::KlDivergence& against = answer.against_full;
  const std::vector<float> sorted = against.SortedKlds();
  record.Add("mean_kld", against.kld().mean());
  record.Add("max_kld", eval::Percentile(sorted, 1));
  record.Add("same_top_rate", against.same_top().mean());
  record.Add("compared_tokens", against.kld().count());
  return record;
}

report::Record ComparisonFacts(const CompareFlags& flags, runtime::Engine& engine,
                               int64_t n_prompt) {
  const auto name = [](const std::string& path) {
    return std::filesystem::path(path).filename().string();
  };
  return {{"model", name(flags.model.model) + ", " + DescribeEngine(engine)},
          {"document", flags.document.file ? name(*flags.document.file) : "-p"},
          {"prompt", std::to_string(n_prompt) + " tokens"},
          {"cache", "keys " + flags.model.key_type + ", values " + flags.model.value_type},
          {"threads", engine.pool().n_threads()},
          {"winnow", BuildVersion()}};
}

}  // namespace

int Compare(Arguments arguments) {
  CompareFlags flags;
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (flags.methods.empty()) {
    return Misuse("compare", "no method: give some with --kv-method LIST");
  }
  if (flags.n_predict < 1) return Misuse("compare", "flag -n: expected 1 or more");
  if (flags.model.kv.trace) {
    return Misuse("compare", "flag --trace: use it with 'winnow run' and one method");
  }
  auto methods = ListCandidates(flags);
  if (!methods) return Misuse("compare", methods.error().message);
  // The session that Load opens is the full cache, without a budget.
  KvFlags kv;
  kv.strict = flags.model.kv.strict;
  flags.model.kv = kv;
  if (const auto valid = Validate(flags.model); !valid) {
    return Misuse("compare", valid.error().message);
  }
  CommandFiles files;
  files.UsesModel(flags.model);
  files.Reads("-f", flags.document.file);
  files.Writes("--report", flags.report, Output::kPage);
  if (const auto over = files.Refused("compare")) return *over;
  ConsoleLog log = MakeLog(flags.model, flags.notes);
  const std::atomic<bool>& interrupted = CatchInterrupt();
  auto loaded = Load(flags.model, log);
  if (!loaded) return Fail(loaded.error());
  const ResultWarnings warnings(*loaded->engine, log);
  const auto prompt = MakePrompt(flags, *loaded, log);
  if (!prompt) return Fail(prompt.error());
  const auto n_prompt = static_cast<int64_t>(prompt->size());
  if (const auto fits = CheckTrainedContext(kv, *loaded->session, n_prompt); !fits) {
    return Fail(fits.error());
  }
  const auto session_options = SessionOptionsFrom(flags.model);
  if (!session_options) return Fail(session_options.error());
  loaded->session.reset();
  log.Info("prompt " + std::to_string(n_prompt) + " tokens");

  ProgressLine progress("comparing");
  const double n_answers = static_cast<double>(methods->size()) + 1;
  double n_done = 0;
  eval::CompareOptions options;
  options.max_tokens = flags.n_predict;
  options.follow_tokens = flags.report.has_value();
  options.on_answer = [&](const eval::Answer&) { progress.Update(++n_done / n_answers); };
  options.keep_going = [&] { return !interrupted.load(); };
  const auto answers = eval::Compare(*loaded->engine, *session_options, *methods, *prompt, options);
  progress.Erase();
  if (!answers) return Fail(answers.error());
  Result<void> reported;
  if (flags.report && !answers->empty()) {
    const ComparePage page = {.question = flags.question,
                              .facts = ComparisonFacts(flags, *loaded->engine, n_prompt),
                              .answers = *answers,
                              .prompt = *prompt,
                              .expected = flags.expected};
    reported = WriteComparePage(page, loaded->engine->tokenizer(), *flags.report);
    if (reported) log.Info("page   " + *flags.report);
  }
  if (flags.json) {
    report::List list;
    for (const eval::Answer& answer : *answers) {
      list.emplace_back(ToRecord(answer, list.empty(), flags.expected));
    }
    Print(
        report::ToJson(report::Record{{"prompt_tokens", n_prompt}, {"answers", std::move(list)}}) +
        "\n");
  } else if (!answers->empty()) {
    PrintAnswers(*answers, flags.expected);
  }
  const int printed = FinishOutput();
  if (!reported) return Fail(reported.error());
  return printed == kDone && interrupted ? InterruptedCode() : printed;
}

}  // namespace winnow::apps

#include "eval/run/compare.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/fixed.h"
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
  AskedQuestions asked;
  std::string system;
  std::string chat_template;
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
      "Answers a question about a document, or, with --hide-question, several questions asked "
      "after the document was compressed, under the full cache and under each method, with the "
      "cost of each and its distance from the full cache. Answers are greedy; the KL divergence is "
      "that of the next-token distributions along "
      "the full cache's answer. Times are of one run; 'winnow bench' measures them.");
  table.Group("Text");
  table.Add({"-f", "--file"}, "FILE", "the document, '-' for standard input", &flags.document.file);
  table.Add({"-p", "--prompt"}, "TEXT", "the document itself", &flags.document.text);
  AddRawTextFlag(table, flags.document);
  table.Add({"-q", "--question"}, "TEXT",
            "a question, asked after the document; can be repeated with --hide-question",
            &flags.asked.texts);
  table.Switch({"--hide-question"},
               "the document is read, and compressed, before anything is asked; every question is "
               "about the document alone",
               &flags.asked.hidden);
  table.Add({"-a", "--answer"}, "TEXT",
            "the right answer, one for each -q: says which answers contain it, and where the "
            "document does. Without it answers are compared with the full cache's",
            &flags.asked.right);
  table.Add({"-sys", "--system-prompt"}, "TEXT", "system prompt", &flags.system);
  table.Add({"--chat-template"}, "NAME", "chat template; empty: the model's own",
            &flags.chat_template);
  table.Switch(
      {"--raw"},
      "no chat template: the document, a line feed, the question. This is the default if the "
      "model has no template",
      &flags.raw);
  table.Add({"-n", "--predict", "--n-predict"}, "N", "maximum tokens of an answer",
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
  AddQualityListFlag(table, flags.budgets, flags.model.kv);
  AddKvFlags(table, flags.model.kv, MethodFlag::kOwn);
  AddLogFlags(table, flags.model, {"--quiet", "--log-disable"});  // -q gives a question
  AddForeignFlags(table, flags.notes);
  return table;
}

Result<std::vector<eval::Candidate>> ListCandidates(const CompareFlags& flags) {
  std::vector<eval::Candidate> all;
  for (const std::string& method : flags.methods) {
    WINNOW_ASSIGN(const auto own, ListCandidates(method, flags.budgets, flags.model.kv));
    all.insert(all.end(), own.begin(), own.end());  // none for the full cache, the first row
  }
  if (ListBudgets(flags.budgets, {}).size() == 1) {
    for (eval::Candidate& candidate : all) candidate.budget.clear();
  }
  return all;
}

Result<eval::ComparedPrompt> MakePrompt(const CompareFlags& flags, const Loaded& loaded, Log& log) {
  const runtime::Session& session = *loaded.session;
  WINNOW_ASSIGN(std::string document, ReadText(flags.document, log));
  WINNOW_TRY(CheckTextSize(*loaded.model, session.capacity(), document));
  const runtime::Engine& engine = session.engine();
  if (!flags.document.text) document = WithoutFinalNewline(std::move(document));
  const tokenizer::Tokenizer& tokenizer = engine.tokenizer();
  WINNOW_ASSIGN(const auto source, engine.file().String("tokenizer.chat_template"));
  std::optional<tokenizer::ChatTemplate> chat_template;
  if (!flags.raw && !(flags.chat_template.empty() && source.value_or("").empty())) {
    WINNOW_ASSIGN(chat_template, ChooseTemplate(flags.chat_template, engine.file(), log));
  }
  const auto write = [&](const std::string& question) -> Result<chat::DocumentPrompt> {
    if (!chat_template) return chat::DocumentPrompt{{{document + "\n", true}}, {{question, true}}};
    return chat::DocumentQuestion(*chat_template, flags.system, document, question);
  };
  eval::ComparedPrompt prompt;
  if (!flags.asked.hidden) {
    const std::string& question = flags.asked.texts.front();
    if (!chat_template) {
      const tokenizer::MarkedText text = {document + "\n" + question, true};
      prompt.tokens = tokenizer.EncodeMarked(std::span(&text, 1));
      return prompt;
    }
    WINNOW_ASSIGN(chat::DocumentPrompt written, write(question));
    written.document.insert(written.document.end(), written.question.begin(),
                            written.question.end());
    prompt.tokens = tokenizer.EncodeMarked(written.document);
    return prompt;
  }
  for (const std::string& question : flags.asked.texts) {
    WINNOW_ASSIGN(const chat::DocumentPrompt written, write(question));
    // The document's tokens are the same for all questions.
    if (prompt.tokens.empty()) prompt.tokens = tokenizer.EncodeMarked(written.document);
    prompt.questions.push_back(tokenizer.EncodeAfter(prompt.tokens.back(), written.question));
  }
  return prompt;
}

// The answer on one line.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

double Mean(const eval::ComparedCache& cache, double eval::Answer::*figure) {
  double sum = 0;
  for (const eval::Answer& answer : cache.answers) sum += answer.*figure;
  return sum / static_cast<double>(cache.answers.size());
}

report::Record CacheRow(const eval::ComparedCache& cache, const eval::ComparedCache& full,
                        bool has_budgets, const AskedQuestions& asked) {
  const bool is_base = &cache == &full;
  const bool one = cache.answers.size() == 1;
  report::Record row = {{"method", cache.method}};
  if (has_budgets) row.Add("budget", cache.budget);
  if (!asked.right.empty()) {
    row.Add("right", GoodText(cache, full, asked));
  } else if (!one) {
    row.Add("same", GoodText(cache, full, asked));
  }
  row.Add("kept", Fixed(cache.kept, 1));
  row.Add("cache", HumanBytes(cache.cache_bytes));
  row.Add("with lists", HumanBytes(cache.cache_bytes_with_lists));
  row.Add("of full f16", ShareText(cache));
  const auto& against = cache.against_full;
  row.Add("KLD", is_base ? "" : Fixed(against.kld().mean(), 5));
  row.Add("same top", is_base ? "" : Fixed(100 * against.same_top().mean(), 1) + " %");
  if (asked.hidden) row.Add("read ms", Fixed(cache.read_ms, 1));
  row.Add("first token ms", Fixed(Mean(cache, &eval::Answer::first_token_ms), 1));
  row.Add("tokens/s", Fixed(Mean(cache, &eval::Answer::tokens_per_second), 1));
  return row;
}

void PrintComparison(std::span<const eval::ComparedCache> caches, const AskedQuestions& asked) {
  std::vector<report::Record> rows;
  const bool has_budgets = HasBudgets(caches);
  bool exceeds = false;
  size_t width = 0;
  for (const eval::ComparedCache& cache : caches) {
    rows.push_back(CacheRow(cache, caches.front(), has_budgets, asked));
    exceeds |= ShareText(cache).ends_with(")");
    width = std::max(width, ToString(cache).size());
  }
  PrintTable(rows, has_budgets ? 2 : 1);
  Print("\nTimes are of one run: 'winnow bench' measures speed.\n");
  if (exceeds) Print(std::string(kExceedsNote) + "\n");
  for (size_t i = 0; i < asked.texts.size(); ++i) {
    Print(asked.hidden ? "\n" + OneLine(asked.texts[i]) + "\n" : "\n");
    for (const eval::ComparedCache& cache : caches) {
      const eval::Answer& answer = cache.answers[i];
      std::string name = (asked.hidden ? "  " : "") + ToString(cache) + ":";
      name.resize(width + (asked.hidden ? 4 : 2), ' ');
      Print(name + OneLine(answer.text) +
            AnswerMark(answer, caches.front().answers[i], asked.right_answer(i)) + "\n");
    }
  }
}

void AddDistance(const eval::KlDivergence& against, report::Record& record) {
  record.Add("mean_kld", against.kld().mean());
  record.Add("max_kld", Percentile(against.SortedKlds(), 1));
  record.Add("same_top_rate", against.same_top().mean());
  record.Add("compared_tokens", against.kld().count());
}

report::Record ToRecord(const eval::Answer& answer, const std::string& right) {
  report::Record record = {{"answer", answer.text},
                           {"tokens", report::MakeList(answer.tokens)},
                           {"first_token_ms", answer.first_token_ms},
                           {"tokens_per_second", answer.tokens_per_second}};
  if (!right.empty()) record.Add("right", HasAnswer(answer.text, right));
  return record;
}

report::Record CacheFacts(const eval::ComparedCache& cache) {
  const runtime::CacheParts& parts = cache.cache_parts;
  return {{"seen", cache.n_seen},
          {"kept", report::CountOrMean(cache.kept)},
          {"cache_bytes", cache.cache_bytes},
          {"cache_bytes_with_lists", cache.cache_bytes_with_lists},
          {"cache_bytes_full_f16", cache.cache_bytes_full_f16},
          {"cache_parts", report::Record{{"key_bytes", parts.key_bytes},
                                         {"value_bytes", parts.value_bytes},
                                         {"method_bytes", parts.method_bytes},
                                         {"list_bytes", parts.list_bytes}}}};
}

// A cache and its answer to a question that was part of the prompt.
report::Record ToRecord(const eval::ComparedCache& cache, bool is_base,
                        const AskedQuestions& asked) {
  report::Record record = {{"method", cache.method}, {"budget", cache.budget}};
  record.Append(ToRecord(cache.answers[0], asked.right_answer(0)));
  record.Append(CacheFacts(cache));
  if (!is_base) AddDistance(cache.against_full, record);
  return record;
}

// A cache and its answers to questions asked after compression.
report::Record WithQuestions(const eval::ComparedCache& cache, bool is_base,
                             const AskedQuestions& asked) {
  report::List answers;
  for (size_t i = 0; i < asked.texts.size(); ++i) {
    report::Record record = {{"question", asked.texts[i]}};
    record.Append(ToRecord(cache.answers[i], asked.right_answer(i)));
    if (!is_base) AddDistance(cache.answers[i].against_full, record);
    answers.emplace_back(std::move(record));
  }
  report::Record record = {
      {"method", cache.method}, {"budget", cache.budget}, {"read_ms", cache.read_ms}};
  record.Append(CacheFacts(cache));
  if (!is_base) AddDistance(cache.against_full, record);
  record.Add("answers", std::move(answers));
  return record;
}

report::Record ToRecord(std::span<const eval::ComparedCache> caches, int64_t n_prompt,
                        const AskedQuestions& asked) {
  report::List list;
  for (const eval::ComparedCache& cache : caches) {
    const bool is_base = list.empty();
    list.emplace_back(asked.hidden ? WithQuestions(cache, is_base, asked)
                                   : ToRecord(cache, is_base, asked));
  }
  return {{"prompt_tokens", n_prompt}, {asked.hidden ? "caches" : "answers", std::move(list)}};
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

// An error in the questions, if any. An absent question becomes an empty one.
std::optional<std::string> CheckQuestions(AskedQuestions& asked) {
  if (asked.hidden && asked.texts.empty()) {
    return "flag --hide-question: give the questions with -q, one or more";
  }
  if (!asked.hidden && asked.texts.size() > 1) {
    return "flag -q: found " + std::to_string(asked.texts.size()) +
           " questions, expected one; with --hide-question the document is compressed once, and "
           "then all are asked";
  }
  if (asked.texts.empty()) asked.texts.emplace_back();
  if (!asked.right.empty() && asked.right.size() != asked.texts.size()) {
    return "flag -a: found " + std::to_string(asked.right.size()) + " answers, expected " +
           std::to_string(asked.texts.size()) + ", one for each question";
  }
  if (std::ranges::count(asked.right, "") > 0) return "flag -a: the right answer is empty";
  return std::nullopt;
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
  if (const auto problem = CheckQuestions(flags.asked)) return Misuse("compare", *problem);
  if (flags.model.kv.trace) {
    return Misuse("compare", "flag --trace: use it with 'winnow run' and one method");
  }
  auto methods = ListCandidates(flags);
  if (!methods) return Misuse("compare", methods.error().message);
  // Load opens a session with the full cache and no budget.
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
  const auto n_prompt = static_cast<int64_t>(prompt->tokens.size());
  int64_t n_question = 0;  // of the longest question
  for (const auto& question : prompt->questions) {
    n_question = std::max(n_question, static_cast<int64_t>(question.size()));
  }
  if (const auto fits = CheckTrainedContext(kv, *loaded->session, n_prompt + n_question); !fits) {
    return Fail(fits.error());
  }
  const auto session_options = SessionOptionsFrom(flags.model);
  if (!session_options) return Fail(session_options.error());
  loaded->session.reset();
  log.Info((flags.asked.hidden ? "document " : "prompt ") + std::to_string(n_prompt) + " tokens");

  ProgressLine progress("comparing");
  const double n_caches = static_cast<double>(methods->size()) + 1;
  double n_done = 0;
  eval::CompareOptions options;
  options.max_tokens = flags.n_predict;
  options.follow_tokens = flags.report.has_value();
  options.on_cache = [&] { progress.Update(++n_done / n_caches); };
  options.keep_going = [&] { return !interrupted.load(); };
  const auto caches = eval::Compare(*loaded->engine, *session_options, *methods, *prompt, options);
  progress.Erase();
  if (!caches) return Fail(caches.error());
  Result<void> reported;
  if (flags.report && !caches->empty()) {
    const ComparePage page = {.asked = flags.asked,
                              .facts = ComparisonFacts(flags, *loaded->engine, n_prompt),
                              .caches = *caches,
                              .prompt = prompt->tokens};
    reported = WriteComparePage(page, loaded->engine->tokenizer(), *flags.report);
    if (reported) log.Info("page   " + *flags.report);
  }
  if (flags.json) {
    Print(report::ToJson(ToRecord(*caches, n_prompt, flags.asked)) + "\n");
  } else if (!caches->empty()) {
    PrintComparison(*caches, flags.asked);
  }
  const int printed = FinishOutput();
  if (!reported) return Fail(reported.error());
  return printed == kDone && interrupted ? InterruptedCode() : printed;
}

}  // namespace winnow::apps

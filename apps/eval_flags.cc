#include "eval_flags.h"

#include <algorithm>
#include <utility>

#include "eval/run/configuration.h"
#include "method_list.h"
#include "ranges.h"

namespace winnow::apps {
namespace {

using eval::GridCell;

// A flag of the task, whose value is read by `parse`; remembers that it was given.
template <typename T, typename Parse>
void AddTaskFlag(FlagTable& table, EvalFlags& flags, FlagTable::Names names, const char* value_name,
                 const std::string& help, T* target, Parse parse) {
  const std::string name = names.front();
  table.Add({std::move(names),
             value_name,
             help,
             "",
             {},
             false,
             [&flags, name, target, parse](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(*target, parse(text));
               flags.given.push_back(name);
               return {};
             }});
}

// Lists that grow when a flag is repeated.
template <typename T, typename Parse>
void AddList(FlagTable& table, FlagTable::Names names, const char* value_name,
             const std::string& help, std::vector<T>* target, Parse parse) {
  table.Add({std::move(names),
             value_name,
             help,
             "",
             {},
             false,
             [target, parse](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(const std::vector<std::string> words, ParseWords(text));
               for (const std::string& word : words) {
                 WINNOW_ASSIGN(const T value, parse(word));
                 target->push_back(value);
               }
               return {};
             }});
}

Result<std::string> ParseText(std::string_view text) { return std::string(text); }

Result<uint64_t> ParseSeed(std::string_view text) {
  WINNOW_ASSIGN(const int64_t value, ParseCount(text));
  return static_cast<uint64_t>(value);
}

Result<std::vector<int64_t>> ParseNumbers(std::string_view text) {
  WINNOW_ASSIGN(const std::vector<int64_t> values, ParseRanges(text));
  if (*std::min_element(values.begin(), values.end()) < 0) {
    return Error{"'" + std::string(text) + "': expected 0 or more"};
  }
  return values;
}

Result<std::vector<GridCell>> ParseGrid(std::string_view text) {
  WINNOW_ASSIGN(const std::vector<std::string> words, ParseWords(text));
  std::vector<GridCell> grid;
  for (const std::string& word : words) {
    const size_t plus = word.find('+');
    const auto n_prompt = ParsePositive(word.substr(0, plus));
    const auto n_generate = ParsePositive(plus == std::string::npos ? "" : word.substr(plus + 1));
    if (!n_prompt || !n_generate) {
      return Error{"'" + word + "' is not PROMPT+GENERATED, such as 256+1024"};
    }
    grid.push_back({*n_prompt, *n_generate});
  }
  return grid;
}

void AddTaskFlags(FlagTable& table, EvalFlags& flags) {
  eval::TaskOptions& task = flags.task;
  const auto add = [&](FlagTable::Names names, const char* value, const std::string& help,
                       auto* target, auto parse) {
    AddTaskFlag(table, flags, std::move(names), value, help, target, parse);
  };
  table.Group("Data");
  add({"--data"}, "DIR", "the data set as it is published: a directory or a file", &task.data,
      ParseText);
  add({"--samples"}, "N",
      "at most N samples of each part (texts, in perplexity and kld), chosen by "
      "the seed; all without it, one per cell in needle",
      &task.n_samples, ParsePositive);
  add({"--seed"}, "N", "of every choice [0]", &task.seed, ParseSeed);
  add({"--tasks"}, "LIST", "parts of a benchmark, such as hotpotqa,trec", &task.tasks, ParseWords);
  add({"--jieba"}, "DIR", "PyPI's package jieba, whose words Chinese F1 and ROUGE-L compare",
      &task.jieba, ParseText);
  table.Group("Task");
  add({"--lengths"}, "LIST",
      "tokens of a text, or lines, topics, pairs; ranges such as 512-2048+512 too", &task.lengths,
      ParseNumbers);
  add({"--depths"}, "LIST", "places of what is asked for, in per cent of the text", &task.depths,
      ParseNumbers);
  add({"-n", "--predict", "--n-predict"}, "N",
      "tokens of an answer at most, instead of the protocol's number", &task.max_tokens,
      ParsePositive);
  add({"--shots"}, "N", "solved examples before a question", &task.shots, ParseCount);
  add({"--by"}, "WHAT",
      "how an option is chosen: letter or text (the likeliest), generation [letter]", &task.by,
      ParseText);
  add({"--needle"}, "TEXT",
      "what is hidden: 'code' for codes of things, or a sentence of your own; without it the "
      "sandwich in Dolores Park",
      &task.needle, ParseText);
  add({"--needles"}, "N", "codes hidden in a text, one of them asked for [4]", &task.n_needles,
      ParsePositive);
  add({"--question"}, "TEXT", "about a needle of your own", &task.question, ParseText);
  add({"--answer"}, "TEXT", "to that question", &task.answer, ParseText);
  add({"--form"}, "TEXT", "a prompt with {document} and {question} in it", &task.form, ParseText);
  add({"--hide-question"}, "", "the document is read, and compressed, before the question",
      &task.hide_question, [](std::string_view) -> Result<bool> { return true; });
  add({"--protocol"}, "NAME",
      "sliding (windows that overlap, read token by token), halves (the first half of a window is "
      "a "
      "prompt), or stream (all texts as one) [sliding]",
      &task.protocol, ParseText);
  add({"--stride"}, "N", "tokens between sliding windows [half a window]", &task.stride,
      ParsePositive);
  add({"--chunks"}, "N", "windows of a text at most", &task.chunks, ParsePositive);
  add({"--every"}, "N", "tokens between points of a stream's curve [1000]", &task.every,
      ParsePositive);
  add({"--grid"}, "LIST", "lengths of prompt and answer, such as 256+1024,512+2048", &task.grid,
      ParseGrid);
  add({"--runs"}, "N", "measurements of each [5]", &task.runs, ParsePositive);
  add({"--memory-limit"}, "BYTES", "run the largest batch that model, buffers and caches fit in",
      &task.memory_limit, ParseBytes);
  add({"--answers"}, "DIR",
      "also write conversations as FastChat's judge reads them, a file for every way of keeping "
      "the cache",
      &task.answers, ParseText);
}

void AddCacheFlags(FlagTable& table, EvalFlags& flags) {
  table.Group("KV cache (every method under every budget, after the full cache)");
  AddMethodListFlag(table, &flags.methods);
  AddBudgetListFlags(table, flags.budgets);
  AddList(table, {"--cache-types"}, "LIST",
          "everything for each of these cache types, such as f16,q8_0,q8_0/q4_0 (keys/values); the "
          "first full cache is what the rest is held against",
          &flags.cache_types, ParseText);
  table.Add({"--kv-decode"}, "SPEC",
            "another method from the first generated token on, for methods that only compress the "
            "prompt",
            &flags.model.kv.decode);
  table.Add({{"--prefill-chunk"},
             "N",
             "tokens of a prompt taken at a time; the cache is compressed after each",
             "",
             {},
             false,
             [&flags](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(flags.model.kv.prefill_chunk, ParsePositive(text));
               return {};
             }});
}

std::string ListText() {
  std::string text = "Tasks:";
  for (const eval::Task& task : eval::Tasks()) text += " " + std::string(task.name);
  return text +
         ". 'winnow eval --list' says what each measures, 'winnow eval TASK --list' what data "
         "it reads and which flags it obeys; docs/eval.md says more.";
}

Result<std::vector<eval::Variant>> VariantsOfMethod(const EvalFlags& flags,
                                                    const std::string& method,
                                                    const runtime::SessionOptions& options) {
  std::vector<eval::Variant> variants;
  WINNOW_ASSIGN(const auto candidates, ListCandidates(method, flags.budgets, flags.model.kv));
  for (const eval::Candidate& candidate : candidates) {
    eval::Variant variant;
    variant.options = options;
    variant.options.compression = candidate.compression;
    variant.method = candidate.compression.method->traits().spec;
    variant.configuration = eval::NormalizeConfiguration(variant.method);
    variant.budget = candidate.budget;
    variant.equal_bytes = candidate.equal_bytes;
    if (candidate.compression.prefill_chunk > 0) {
      variant.budget += (variant.budget.empty() ? "" : ", ") +
                        ("chunks of " + std::to_string(candidate.compression.prefill_chunk));
    }
    variants.push_back(std::move(variant));
  }
  return variants;
}

}  // namespace

FlagTable MakeEvalTable(EvalFlags& flags) {
  FlagTable table("eval", "TASK -m FILE --data DIR [--kv-method LIST --kv-ratio LIST] [flags]",
                  "Runs an evaluation under the full cache and under every method and budget, and "
                  "compares them in one table. Reads data sets as they are published, or "
                  "'--data builtin'.");
  AddTaskFlags(table, flags);
  AddCacheFlags(table, flags);
  table.Group("Prompt");
  table.Add({"--chat-template"}, "NAME",
            "how messages are written down; empty: as the model's file says, plain text if it says "
            "nothing",
            &flags.chat_template);
  table.Switch({"--raw"}, "plain text even for a model with a chat template", &flags.raw);
  table.Add({"-sys", "--system-prompt"}, "TEXT", "what the model is told beforehand",
            &flags.system);
  table.Group("Output");
  table.Add(
      {"--results"}, "FILE",
      "every single result as a line of JSON, written as soon as it is there; results the file "
      "already holds are not computed again, so that the same command goes on where it was "
      "interrupted",
      &flags.results);
  table.Add({"--json"}, "FILE", "summary and single results as one JSON object, '-' for stdout",
            &flags.json);
  table.Add({"--report"}, "FILE", "a page with tables and charts (HTML)", &flags.report);
  table.Switch({"--list"}, "say what tasks there are, or more about TASK", &flags.list);
  AddModelFlags(table, flags.model);
  AddLogFlags(table, flags.model);
  AddForeignFlags(table, flags.notes);
  table.Note(ListText());
  return table;
}

Result<void> CheckTaskFlags(const eval::Task& task, const EvalFlags& flags) {
  for (const std::string& flag : flags.given) {
    const bool common =
        flag == "--seed" || ((flag == "--data" || flag == "--samples") && task.data != "nothing");
    if (common || std::find(task.flags.begin(), task.flags.end(), flag) != task.flags.end()) {
      continue;
    }
    std::string known;
    for (const std::string_view name : task.flags) known += " " + std::string(name);
    return Error{"flag " + flag + " means nothing to " + std::string(task.name) +
                 (known.empty() ? "" : ", which obeys" + known)};
  }
  return {};
}

Result<std::vector<eval::Variant>> MakeVariants(const EvalFlags& flags) {
  std::vector<eval::Variant> variants;
  if (flags.methods.empty() && (!flags.budgets.empty() || !flags.model.kv.decode.empty() ||
                                flags.model.kv.prefill_chunk > 0)) {
    return Error{"the full cache has no size to choose: name methods with --kv-method"};
  }
  std::vector<std::string> types = flags.cache_types;
  if (types.empty()) types = {flags.model.key_type + "/" + flags.model.value_type};
  for (const std::string& type : types) {
    ModelFlags model = flags.model;
    model.kv = {};
    const size_t slash = type.find('/');
    model.key_type = type.substr(0, slash);
    model.value_type = slash == std::string::npos ? model.key_type : type.substr(slash + 1);
    WINNOW_ASSIGN(const runtime::SessionOptions options, SessionOptionsFrom(model));
    const std::string name = model.key_type == model.value_type
                                 ? model.key_type
                                 : model.key_type + "/" + model.value_type;
    variants.push_back({.method = "full",
                        .budget = "",
                        .cache_types = name,
                        .options = options,
                        .configuration = "full"});
    for (const std::string& method : flags.methods) {
      WINNOW_ASSIGN(auto more, VariantsOfMethod(flags, method, options));
      for (eval::Variant& variant : more) {
        variant.cache_types = name;
        variants.push_back(std::move(variant));
      }
    }
  }
  return variants;
}

}  // namespace winnow::apps

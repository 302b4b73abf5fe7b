// Key-value retrieval: the value of one key out of many pairs of random identifiers.
// [arXiv:2307.03172, "Lost in the Middle"]
#include <algorithm>

#include "eval/metrics/keywords.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kKvRetrievalData =
    "kv-retrieval-N_keys*.jsonl as nelson-liu/lost-in-the-middle publishes them, unpacked "
    "(ordered_kv_records, key, value; one object per line)";
constexpr int64_t kKvRetrievalMaxTokens = 100;  // [its get_kv_responses script]

struct KvRetrievalOptions : DataOptions {
  std::vector<int64_t> lengths;
  std::vector<int64_t> depths;
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(KvRetrievalOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitLengths(o.lengths, v);
  VisitDepths(o.depths, v);
  VisitMaxTokens(o.max_tokens, v);
}

using Pair = std::pair<std::string, std::string>;

struct Lookup {
  std::vector<Pair> pairs;
  std::string key, value;
};

Result<Lookup> ReadLookup(const Row& row) {
  Lookup lookup;
  WINNOW_ASSIGN(lookup.key, row.Text("key"));
  WINNOW_ASSIGN(lookup.value, row.Text("value"));
  const report::Value* records = row.record().Find("ordered_kv_records");
  const auto* list = records ? std::get_if<report::List>(&records->data) : nullptr;
  if (list == nullptr) return row.FormatError("ordered_kv_records", "a list of [key, value]");
  for (const report::Value& item : *list) {
    const auto* pair = std::get_if<report::List>(&item.data);
    if (pair == nullptr || pair->size() != 2) {
      return row.FormatError("ordered_kv_records", "a list of [key, value]");
    }
    lookup.pairs.emplace_back(ValueText((*pair)[0]), ValueText((*pair)[1]));
  }
  return lookup;
}

// Moves the pair that is asked for to `depth` per cent of the list, 0..100.
Result<void> MoveTo(int64_t depth, Lookup& lookup) {
  const auto asked = std::find_if(lookup.pairs.begin(), lookup.pairs.end(),
                                  [&](const Pair& pair) { return pair.first == lookup.key; });
  if (asked == lookup.pairs.end()) return Error{"the key asked for is not among the pairs"};
  const Pair pair = *asked;
  lookup.pairs.erase(asked);
  const auto n = static_cast<int64_t>(lookup.pairs.size());
  lookup.pairs.insert(lookup.pairs.begin() + (n * depth + 50) / 100, pair);
  return {};
}

std::string FormatPrompt(const Lookup& lookup) {
  std::string text =
      "Extract the value corresponding to the specified key in the JSON object below.\n\n"
      "JSON data:\n{";
  for (const auto& [key, value] : lookup.pairs) {
    if (text.back() != '{') text += ",\n ";
    text += "\"" + key + "\": \"" + value + "\"";
  }
  return text + "}\n\nKey: \"" + lookup.key + "\"\nCorresponding value:";
}

Result<std::unique_ptr<Workload>> Make(const TaskContext& context,
                                       const KvRetrievalOptions& options, const Lookup& lookup) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(kKvRetrievalMaxTokens);
  WINNOW_ASSIGN(question.prompt, FormatWithoutCutting(context.prompts, FormatPrompt(lookup),
                                                      Style::kChat, question.max_tokens));
  question.references = {lookup.value};
  question.score = [value = lookup.value](const std::string& answer) {
    return std::vector<Score>{{"found", FoundFraction(answer, std::span(&value, 1))}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const KvRetrievalOptions& options) {
  WINNOW_TRY(CheckDepths(context, options.depths));
  WINNOW_TRY(NeedData(context, options.data, kKvRetrievalData));
  WINNOW_ASSIGN(const std::vector<std::string> files, ListFiles(options.data, ".jsonl"));
  std::vector<int64_t> depths = options.depths;
  if (depths.empty()) depths = {-1};  // in the order of the file
  std::vector<Sample> samples;
  for (const std::string& path : files) {
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(path));
    for (size_t i = 0; i < rows.size(); ++i) {
      WINNOW_ASSIGN(const Lookup lookup, ReadLookup(rows[i]));
      const auto n_pairs = static_cast<int64_t>(lookup.pairs.size());
      if (!Names(options.lengths, n_pairs)) continue;
      for (const int64_t depth : depths) {
        Lookup moved = lookup;
        if (depth >= 0) WINNOW_TRY(MoveTo(depth, moved));
        const std::string at = depth >= 0 ? "/" + std::to_string(depth) + "%" : "";
        report::Record labels = {{"pairs", n_pairs}};
        if (depth >= 0) labels.Add("depth", depth);
        samples.push_back({.id = FileName(path) + "/" + std::to_string(i) + at,
                           .group = std::to_string(n_pairs) + at,
                           .labels = std::move(labels),
                           .make = [&context, &options, moved = std::move(moved)] {
                             return Make(context, options, moved);
                           }});
      }
    }
  }
  if (samples.empty()) return Missing(options.data, kKvRetrievalData);
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task KvRetrievalTask() {
  return WithOptions<KvRetrievalOptions>(
      {.name = "kv-retrieval",
       .summary = "exact retrieval of one value from a list of random key-value pairs",
       .data = kKvRetrievalData,
       .repeats = "none of the five papers' tables; exact recall with control of the position",
       .columns = {{.name = "found", .title = "found"}}},
      Samples);
}

}  // namespace winnow::eval

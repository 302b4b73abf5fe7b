#include "kv_flags.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compression/registry.h"
#include "runtime/budget/compression_settings.h"

namespace winnow::apps {
namespace {

// A flag without a visible default whose value is read by `parse`.
template <typename T, typename Parse>
void AddParsed(FlagTable& table, FlagTable::Names names, const char* value_name, const char* help,
               T* target, Parse parse) {
  table.Add({std::move(names),
             value_name,
             help,
             "",
             {},
             false,
             [target, parse](std::string_view text) -> Result<void> {
               WINNOW_ASSIGN(*target, parse(text));
               return {};
             }});
}

}  // namespace

void AddBudgetFlags(FlagTable& table, KvFlags& flags, FlagTable::Names size_names,
                    FlagTable::Names ratio_names, FlagTable::Names memory_names) {
  AddParsed(table, std::move(size_names), "N", "budget: entries a KV head of a layer may keep",
            &flags.size, ParsePositive);
  AddParsed(table, std::move(ratio_names), "R",
            "budget: the share of the prompt's entries that stays, such as 0.25", &flags.ratio,
            ParseShare);
  AddParsed(table, std::move(memory_names), "BYTES",
            "budget: bytes of the whole cache at any moment, such as 256M; never exceeded; "
            "applies to each cache separately",
            &flags.memory_bytes, ParseBytes);
}

void AddQualityFlag(FlagTable& table, KvFlags& flags) {
  flags.has_quality = true;
  AddParsed(table, {"--kv-quality"}, "KL",
            "budget (experimental): the smallest whose estimated mean KL divergence from the full "
            "cache, on text after the prompt, is at most this, in nats per token, such as 0.03. "
            "Takes as long as reading the prompt 4.5 to 7.5 times",
            &flags.quality, ParseNats);
}

void AddChunkFlag(FlagTable& table, KvFlags& flags) {
  AddParsed(table, {"--prefill-chunk"}, "N",
            "tokens of a prompt taken at a time; the cache is compressed after each. Without it "
            "the prompt is taken whole",
            &flags.prefill_chunk, ParsePositive);
}

void AddKvFlags(FlagTable& table, KvFlags& flags, MethodFlag method_flag) {
  table.Group("KV cache");
  if (method_flag != MethodFlag::kOwn) {
    table.Add({"--kv-method"}, "SPEC", kMethodHelp, &flags.method);
    AddBudgetFlags(table, flags);
    if (method_flag == MethodFlag::kOne) AddQualityFlag(table, flags);
  }
  table.Add({{"--kv-decode"},
             "SPEC",
             "another method from the first generated token on, for methods that only compress "
             "the prompt",
             "",
             {},
             false,
             [&flags](std::string_view text) {
               flags.decode = text;
               return Result<void>();
             }});
  AddChunkFlag(table, flags);
  if (method_flag == MethodFlag::kDefault) return;
  table.Add({"--trace"}, "FILE", "write every decision of the method, as JSON lines", &flags.trace);
  table.Switch({"--strict"}, "a text longer than the model was trained for is an error",
               &flags.strict);
}

Result<runtime::CompressionOptions> CompressionOptionsFrom(const KvFlags& flags) {
  const runtime::CompressionFieldNames words = {.method = "--kv-method",
                                                .decode = "--kv-decode",
                                                .size = "--kv-size",
                                                .ratio = "--kv-ratio",
                                                .memory = "--kv-memory",
                                                .quality = flags.has_quality ? "--kv-quality" : ""};
  Compression wanted = flags;
  // The size is determined by the prompt; until then use one that the method accepts.
  if (flags.equal_bytes > 0) wanted.ratio = 1;
  WINNOW_ASSIGN(runtime::CompressionOptions options, runtime::MakeCompression(wanted, words));
  if (flags.equal_bytes > 0) {
    options.ratio = 0;
    options.size = std::max<int64_t>(1, options.method->traits().budget.min);
  }
  return options;
}

Result<std::vector<std::string>> SplitMethods(std::string_view text) {
  std::vector<std::string> methods;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) {
      if (text[i] == '(') ++depth;
      if (text[i] == ')') --depth;
      if (text[i] != ',' || depth > 0) continue;
      const std::string_view rest = text.substr(i + 1);
      const std::string_view next = rest.substr(0, rest.find_first_of(":,"));
      if (next.find('=') != std::string_view::npos) continue;
    }
    if (i == begin) return Error{"an empty method in '" + std::string(text) + "'"};
    methods.emplace_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return methods;
}

double MeanKept(const Session& session) {
  const std::vector<double> kept = session.kept();
  return std::accumulate(kept.begin(), kept.end(), 0.0) / static_cast<double>(kept.size());
}

double MeanKept(const runtime::Session& session) {
  const int n_layers = session.cache().config().shape.n_layers;
  double sum = 0;
  for (int layer = 0; layer < n_layers; ++layer) sum += session.kept(layer);
  return sum / n_layers;
}

report::Record KvRecord(const Session& session) {
  report::List kept;
  for (const double of_layer : session.kept()) kept.emplace_back(report::CountOrMean(of_layer));
  const SessionInfo info = session.info();
  report::Record record = {{"method", info.method},
                           {"seen", static_cast<int64_t>(session.tokens().size())},
                           {"kept", std::move(kept)}};
  if (info.budget > 0) record.Add("budget", info.budget);
  if (info.limited_by_budget) record.Add("limited_by_budget", true);
  if (info.attended_share) record.Add("attended_share", *info.attended_share);
  if (info.quality) {
    record.Add("quality", report::Record{{"share", info.quality->share},
                                         {"kl", info.quality->kl},
                                         {"standard_error", info.quality->standard_error},
                                         {"p99", info.quality->p99},
                                         {"tokens", info.quality->tokens},
                                         {"tried", int64_t{info.quality->tried}}});
  }
  return record;
}

namespace {

Result<void> CheckTrainedContext(const KvFlags& flags, bool reassigns_positions, int64_t trained,
                                 int64_t n_tokens) {
  if (!flags.strict || reassigns_positions || n_tokens <= trained) return {};
  return Error{"--strict: the text is " + std::to_string(n_tokens) +
               " tokens, the model was trained for " + std::to_string(trained) +
               "; methods that reassign positions go beyond: " +
               compression::ListNames([](const compression::Method& method) {
                 return method.traits().storage.ReassignsPositions();
               })};
}

}  // namespace

Result<void> CheckTrainedContext(const KvFlags& flags, const Model& model, const Session& session,
                                 int64_t n_tokens) {
  return CheckTrainedContext(flags, session.info().reassigns_positions,
                             model.info().trained_context, n_tokens);
}

Result<void> CheckTrainedContext(const KvFlags& flags, runtime::Session& session,
                                 int64_t n_tokens) {
  const int64_t trained = session.engine().model().hyperparameters().trained_context;
  const bool reassigns = session.cache().config().storage.ReassignsPositions();
  return CheckTrainedContext(flags, reassigns, trained, n_tokens);
}

}  // namespace winnow::apps

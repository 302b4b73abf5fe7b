#include "kv_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "compression/registry.h"

namespace winnow::apps {
namespace {

constexpr const char* kMethodsHint = "'winnow methods' lists them";

// A flag without a default worth showing, whose value is read by `parse`.
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

Result<int64_t> ParseBytes(std::string_view text) {
  const Error wrong{"found '" + std::string(text) +
                    "', expected bytes such as 268435456, 512k, 256M or 1.5G"};
  double factor = 1;
  std::string_view number = text;
  if (!text.empty()) {
    const char suffix = text.back();
    if (suffix == 'k' || suffix == 'K') factor = 1024;
    if (suffix == 'm' || suffix == 'M') factor = 1024.0 * 1024;
    if (suffix == 'g' || suffix == 'G') factor = 1024.0 * 1024 * 1024;
    if (factor != 1) number.remove_suffix(1);
  }
  const auto value = ParseDecimal(number);
  if (!value || !(*value > 0)) return wrong;
  const double bytes = std::floor(*value * factor);
  if (bytes < 1 || bytes > 9e18) return wrong;
  return static_cast<int64_t>(bytes);
}

void AddBudgetFlags(FlagTable& table, KvFlags& flags, FlagTable::Names size_names,
                    FlagTable::Names ratio_names, FlagTable::Names memory_names) {
  AddParsed(table, std::move(size_names), "N", "budget: entries a KV head of a layer may keep",
            &flags.size, ParsePositive);
  AddParsed(table, std::move(ratio_names), "R",
            "budget: the share of the prompt's entries that stays, such as 0.25", &flags.ratio,
            ParseShare);
  AddParsed(table, std::move(memory_names), "BYTES",
            "budget: bytes of the whole cache at any moment, such as 256M; never exceeded. Of each "
            "cache, where a command holds several at once",
            &flags.memory_bytes, ParseBytes);
}

void AddChunkFlag(FlagTable& table, KvFlags& flags) {
  AddParsed(table, {"--prefill-chunk"}, "N",
            "tokens of a prompt taken at a time; the cache is compressed after each. Without it "
            "the prompt is taken whole",
            &flags.prefill_chunk, ParsePositive);
}

void AddKvFlags(FlagTable& table, KvFlags& flags, MethodFlag method_flag) {
  table.Group("KV cache");
  if (method_flag == MethodFlag::kOne) {
    table.Add({"--kv-method"}, "SPEC", kMethodHelp, &flags.method);
    AddBudgetFlags(table, flags);
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
  table.Add({"--trace"}, "FILE", "write every decision of the method, as JSON lines", &flags.trace);
  table.Switch({"--strict"}, "a text longer than the model was trained for is an error",
               &flags.strict);
}

Result<runtime::CompressionOptions> CompressionOptionsFrom(const KvFlags& flags) {
  const int n_budgets = (flags.size > 0 ? 1 : 0) + (flags.ratio > 0 ? 1 : 0) +
                        (flags.memory_bytes > 0 ? 1 : 0) + (flags.equal_bytes > 0 ? 1 : 0);
  if (n_budgets > 1) return Error{"give only one of --kv-size, --kv-ratio and --kv-memory"};
  runtime::CompressionOptions options;
  options.size = flags.size;
  options.ratio = flags.ratio;
  options.memory_bytes = flags.memory_bytes;
  options.prefill_chunk = flags.prefill_chunk;

  auto method = compression::MakeMethod(flags.method);
  if (!method) return Error{"--kv-method: " + method.error().message};
  if (!flags.decode.empty()) {
    auto decode = compression::MakeMethod(flags.decode);
    if (!decode) return Error{"--kv-decode: " + decode.error().message};
    method = compression::WithDecode(*method, *decode);
    if (!method) return Error{"--kv-decode: " + method.error().message};
  }
  const compression::Traits& traits = (*method)->traits();
  if (traits.spec == "full") {
    // Nothing to decide: the engine's plain path. A limit in bytes still holds.
    if (flags.size > 0 || flags.ratio > 0 || flags.equal_bytes > 0) {
      return Error{std::string("the full cache has no size to choose: name a method with "
                               "--kv-method; ") +
                   kMethodsHint};
    }
    return options;
  }
  options.method = *method;
  // The prompt decides; until then some size that the method accepts.
  if (flags.equal_bytes > 0) options.size = std::max<int64_t>(1, traits.min_budget);
  const std::string at_least = std::to_string(traits.min_budget);
  if (traits.needs_budget && n_budgets == 0) {
    return Error{traits.spec + " needs a budget: --kv-size N (entries per KV head, " + at_least +
                 " or more), --kv-ratio R (share of the prompt) or --kv-memory BYTES"};
  }
  if (flags.size > 0 && flags.size < traits.min_budget) {
    return Error{"--kv-size: found " + std::to_string(flags.size) + ", " + traits.spec + " needs " +
                 at_least + " or more"};
  }
  WINNOW_TRY(runtime::Compressor::Check(options));
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

std::string MethodName(const runtime::Session& session) {
  const compression::MethodPtr& method = session.compression().method;
  return method ? method->traits().spec : "full";
}

double MeanKept(const runtime::Session& session) {
  const int n_layers = session.cache().config().shape.n_layers;
  double sum = 0;
  for (int layer = 0; layer < n_layers; ++layer) sum += session.kept(layer);
  return sum / n_layers;
}

report::Record KvRecord(const runtime::Session& session) {
  report::List kept;
  for (int layer = 0; layer < session.cache().config().shape.n_layers; ++layer) {
    kept.emplace_back(report::CountOrMean(session.kept(layer)));
  }
  report::Record record = {
      {"method", MethodName(session)}, {"seen", session.n_tokens()}, {"kept", std::move(kept)}};
  if (session.budget() > 0) record.Add("budget", session.budget());
  if (session.compression().method && session.compression().method->traits().top_p < 1) {
    record.Add("attended_share", session.attended_share());
  }
  return record;
}

Result<void> CheckTrainedContext(const KvFlags& flags, runtime::Session& session,
                                 int64_t n_tokens) {
  const int64_t trained = session.engine().model().hyperparameters().trained_context;
  const cache::PositionMode positions = session.cache().config().positions;
  const bool in_text =
      positions == cache::PositionMode::kOriginal || positions == cache::PositionMode::kText;
  if (!flags.strict || !in_text || n_tokens <= trained) return {};
  return Error{"--strict: the text is " + std::to_string(n_tokens) +
               " tokens, the model was trained for " + std::to_string(trained) +
               "; methods that reassign positions (streaming, treekv) go beyond"};
}

}  // namespace winnow::apps

#include "server/openai/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "server/openai/kv_fields.h"

namespace winnow::server {
namespace {

constexpr double kLarge = 1e6;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = size_t{64} << 10;  // of all together
constexpr size_t kMaxBiases = 4096;
constexpr int64_t kMaxChoices = 128;
constexpr int64_t kMaxTop = 100;

using Bias = std::pair<int32_t, float>;

// A bias is a number, or false to exclude the token.
std::optional<float> BiasIn(const report::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) {
    return *flag ? std::nullopt : std::optional(-std::numeric_limits<float>::infinity());
  }
  const std::optional<double> number = report::NumberIn(value);
  if (!number || std::isnan(*number)) return std::nullopt;
  return static_cast<float>(*number);
}

// {"15043": -1} as in OpenAI's API, or [[15043, -1], ["text", false]] as in llama-server's.
void ReadBias(Fields& fields, const tokenizer::Tokenizer& tokenizer, std::vector<Bias>& out) {
  const report::Value* value = fields.Find("logit_bias");
  if (value == nullptr) return;
  const auto wrong = [&](const std::string& what) {
    fields.Fail("logit_bias", what + "; expected {\"TOKEN ID\": BIAS, ...}");
  };
  const auto add = [&](int64_t token, const report::Value& bias) {
    const std::optional<float> number = BiasIn(bias);
    if (token < 0 || token >= tokenizer.vocabulary_size()) {
      wrong("token " + std::to_string(token) + " is not in the vocabulary of " +
            std::to_string(tokenizer.vocabulary_size()));
    } else if (!number) {
      wrong("the bias of token " + std::to_string(token) + " is " + KindName(bias));
    } else if (out.size() == kMaxBiases) {
      wrong("more than " + std::to_string(kMaxBiases) + " tokens");
    } else {
      out.emplace_back(static_cast<int32_t>(token), *number);
    }
    return fields.ok();
  };
  if (const auto* record = std::get_if<report::Record>(&value->data)) {
    for (const report::Field& field : record->fields) {
      int64_t token = 0;
      const char* end = field.name.data() + field.name.size();
      const auto [stop, problem] = std::from_chars(field.name.data(), end, token);
      if (problem != std::errc() || stop != end)
        return wrong("'" + field.name + "' is not a token id");
      if (!add(token, field.value)) return;
    }
    return;
  }
  const auto* list = std::get_if<report::List>(&value->data);
  if (list == nullptr) return wrong(std::string("found ") + KindName(*value));
  for (const report::Value& item : *list) {
    const auto* pair = std::get_if<report::List>(&item.data);
    if (pair == nullptr || pair->size() != 2) return wrong("an item of the list is not a pair");
    if (const auto* token = std::get_if<int64_t>(&(*pair)[0].data)) {
      if (!add(*token, (*pair)[1])) return;
    } else if (const auto* text = std::get_if<std::string>(&(*pair)[0].data)) {
      for (const tokenizer::TokenId id : tokenizer.Encode(*text, {.add_special = false})) {
        if (!add(id, (*pair)[1])) return;
      }
    } else {
      return wrong("a pair does not begin with a token id or a text");
    }
  }
}

void ReadSampler(Fields& fields, Dialect dialect, Generation& out) {
  runtime::SamplerConfig& sampler = out.sampler;
  const auto number = [&](std::string_view name, double low, double high, double& target) {
    if (const auto value = fields.Number(name, low, high)) target = *value;
  };
  // llama-server takes the nearest value of the range (server-schema.cpp, set_limits), so that a
  // negative temperature is greedy; in OpenAI's API a value outside it is an error.
  const auto limited = [&](std::string_view name, double low, double high, double& target) {
    constexpr double kMax = std::numeric_limits<double>::max();
    if (dialect == Dialect::kOpenAi) return number(name, low, high, target);
    if (const auto value = fields.Number(name, -kMax, kMax)) target = std::clamp(*value, low, high);
  };
  limited("temperature", 0, kLarge, sampler.temperature);
  limited("top_p", 0, 1, sampler.top_p);
  limited("min_p", 0, 1, sampler.min_p);
  limited("typical_p", 0, 1, sampler.typical_p);
  number("repeat_penalty", 1e-3, kLarge, sampler.repeat_penalty);
  number("presence_penalty", -kLarge, kLarge, sampler.presence_penalty);
  number("frequency_penalty", -kLarge, kLarge, sampler.frequency_penalty);
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  const int64_t min_k = dialect == Dialect::kNative ? -kMaxInt : -1;
  if (const auto k = fields.Integer("top_k", min_k, kMaxInt)) {
    sampler.top_k = static_cast<int>(std::max<int64_t>(*k, -1));
  }
  if (const auto n = fields.Integer("repeat_last_n", -1, kMaxInt)) {
    sampler.repeat_last_n = static_cast<int>(*n);
  }
}

// Clients of llama-server send these with every request; only values that turn one on would change
// the answer.
void RefuseMissingSamplers(Fields& fields) {
  for (const char* name :
       {"mirostat", "dry_multiplier", "xtc_probability", "top_n_sigma", "dynatemp_range"}) {
    const auto value = fields.Number(name, -kLarge, kLarge);
    if (value && *value > 0) {
      fields.Fail(name, "found a value above 0, expected 0: winnow lacks this sampler");
    }
  }
}

void ReadLength(Fields& fields, Dialect dialect, Generation& out) {
  // -1 is "no limit" in llama-server and in requests of many clients; 0 only reads the prompt.
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    if (const auto n = fields.Integer(name, -1)) {
      // OpenAI allows 0 for a text, but not for a chat.
      if (dialect == Dialect::kOpenAi && *n == 0 && fields.Find("messages") != nullptr) {
        fields.Fail(name, "found 0, expected 1 or more, or -1 for no limit");
      }
      out.max_tokens = *n;
    }
  }
}

// In llama-server a number above the vocabulary's size means the whole vocabulary. Here kMaxTop is
// a limit too, because sorting and sending a vocabulary for every token delays other clients.
void ReadTop(Fields& fields, Dialect dialect, int64_t vocabulary, Generation& out) {
  if (dialect == Dialect::kOpenAi) {
    const auto n = fields.Integer("n_probs", 0, kMaxTop);
    if (n && *n > 0) out.n_probs = static_cast<int>(*n);
  } else if (const auto n = fields.Integer("n_probs"); n && *n > 0) {
    out.n_probs = static_cast<int>(std::min({*n, kMaxTop, vocabulary}));
  }
}

// Negative: random.
int64_t ReadSeed(Fields& fields, const ServiceOptions& options, Dialect dialect) {
  constexpr int64_t kRandom = std::numeric_limits<uint32_t>::max();  // LLAMA_DEFAULT_SEED
  const int64_t seed = fields.Integer("seed").value_or(options.seed);
  return dialect == Dialect::kNative && seed == kRandom ? -1 : seed;
}

// Priorities let one client delay all others, so the server must allow them.
void ReadPriority(Fields& fields, const ServiceOptions& options, Generation& out) {
  constexpr int kMax = 1'000'000;
  out.priority = static_cast<int>(fields.Integer("priority", -kMax, kMax).value_or(0));
  if (out.priority != 0 && !options.priorities) {
    fields.Fail("priority",
                "found " + std::to_string(out.priority) +
                    ", expected 0: requests are served in order of arrival unless the server "
                    "is started with " +
                    std::string(options.words.priorities));
  }
}

}  // namespace

Generation ReadGeneration(Fields& fields, const ServiceOptions& options,
                          const tokenizer::Tokenizer& tokenizer, Dialect dialect,
                          uint64_t random_seed) {
  Generation out;
  out.sampler = options.sampler;
  ReadSampler(fields, dialect, out);
  RefuseMissingSamplers(fields);
  ReadBias(fields, tokenizer, out.sampler.logit_bias);
  const int64_t seed = ReadSeed(fields, options, dialect);
  out.sampler.seed = seed < 0 ? random_seed : static_cast<uint64_t>(seed);
  ReadLength(fields, dialect, out);
  out.stop = fields.Texts("stop", kMaxStops);
  std::erase(out.stop, std::string());
  size_t stop_bytes = 0;
  for (const std::string& text : out.stop) stop_bytes += text.size();
  if (stop_bytes > kMaxStopBytes) {
    fields.Fail("stop", "found " + std::to_string(stop_bytes) + " bytes, expected at most " +
                            std::to_string(kMaxStopBytes));
    out.stop.clear();
  }
  // The choices start together, so more than fit at once would never start.
  const int64_t max_choices = std::clamp<int64_t>(options.n_slots, 1, kMaxChoices);
  out.n = static_cast<int>(fields.Integer("n", 1, max_choices).value_or(1));
  out.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  ReadTop(fields, dialect, tokenizer.vocabulary_size(), out);
  out.session = fields.Text("session");
  ReadPriority(fields, options, out);
  out.id_slot = fields.Integer("id_slot", -1, options.n_slots - 1).value_or(-1);
  if (out.session && out.id_slot >= 0) {
    fields.Fail("id_slot", "session and id_slot cannot be combined");
  }
  out.options = ReadKv(fields, options);
  out.reuse_prefix = fields.Bool("cache_prompt").value_or(options.cache_prompt);
  out.reuse_across_questions = fields.Bool("reuse_across_questions").value_or(false);
  out.stream = fields.Bool("stream").value_or(false);
  out.return_progress = fields.Bool("return_progress").value_or(false);
  out.timings_per_token = fields.Bool("timings_per_token").value_or(false);
  if (const report::Record* stream_options = fields.Object("stream_options")) {
    Fields inner(*stream_options, "stream_options.");
    out.include_usage = inner.Bool("include_usage").value_or(false);
    if (!inner.ok()) fields.Fail(*inner.error());
  }
  if (out.session && out.options) {
    fields.Fail("session",
                "a session keeps the method and budget it was made with; leave out kv_*");
  }
  return out;
}

std::string SlotSession(int64_t slot) { return "slot-" + std::to_string(slot); }

runtime::Request RequestFrom(const Generation& generation) {
  runtime::Request request;
  request.session = generation.session;
  if (generation.id_slot >= 0) request.replaces = SlotSession(generation.id_slot);
  request.priority = -generation.priority;
  request.options = generation.options;
  request.reuse_prefix = generation.reuse_prefix;
  request.reuse_across_questions = generation.reuse_across_questions;
  request.keep = generation.reuse_prefix;
  request.sampler = generation.sampler;
  request.max_tokens = generation.max_tokens;
  request.stop = generation.stop;
  request.ignore_eos = generation.ignore_eos;
  request.n = generation.n;
  request.n_probs = generation.n_probs;
  return request;
}

report::Record SettingsRecord(const Generation& generation) {
  const runtime::SamplerConfig& sampler = generation.sampler;
  report::List bias;
  for (const auto& [token, value] : sampler.logit_bias) {
    bias.emplace_back(report::List{token, static_cast<double>(value)});
  }
  return {{"n_predict", generation.max_tokens},
          {"seed", static_cast<int64_t>(sampler.seed)},
          {"temperature", sampler.temperature},
          {"top_k", sampler.top_k},
          {"top_p", sampler.top_p},
          {"min_p", sampler.min_p},
          {"typical_p", sampler.typical_p},
          {"repeat_last_n", sampler.repeat_last_n},
          {"repeat_penalty", sampler.repeat_penalty},
          {"presence_penalty", sampler.presence_penalty},
          {"frequency_penalty", sampler.frequency_penalty},
          {"logit_bias", std::move(bias)},
          {"ignore_eos", generation.ignore_eos},
          {"stop", report::MakeList(generation.stop)},
          {"n_probs", std::max(generation.n_probs, 0)},
          {"stream", generation.stream}};
}

}  // namespace winnow::server

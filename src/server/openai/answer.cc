#include "server/openai/answer.h"

namespace winnow::server {
namespace {

const char* ReuseName(runtime::PrefixReuse reuse) {
  switch (reuse) {
    case runtime::PrefixReuse::kExact:
      return "exact";
    case runtime::PrefixReuse::kCompressed:
      return "compressed";
    case runtime::PrefixReuse::kNone:
      break;
  }
  return "none";
}

double PerToken(double ms, int64_t n) { return n > 0 ? ms / static_cast<double>(n) : 0; }

}  // namespace

report::Record UsageRecord(const Answer& answer) {
  int64_t n_prompt = 0;
  int64_t n_cached = 0;
  int64_t n_generated = 0;
  for (const PromptState& prompt : answer.prompts) {
    n_prompt += prompt.n_tokens;
    n_cached += prompt.n_reused;
  }
  for (const Choice& choice : answer.choices) {
    n_generated += static_cast<int64_t>(choice.tokens.size());
  }
  return {{"prompt_tokens", n_prompt},
          {"completion_tokens", n_generated},
          {"total_tokens", n_prompt + n_generated},
          {"prompt_tokens_details", report::Record{{"cached_tokens", n_cached}}}};
}

report::Record KvRecord(const Answer& answer, const Choice& choice) {
  return {{"method", choice.cache.method},
          {"seen", choice.cache.n_seen},
          {"kept", choice.cache.n_kept},
          {"bytes", choice.cache.bytes},
          {"bytes_full", choice.cache.bytes_full_f16},
          {"prefix", ReuseName(answer.prompts[choice.prompt].reuse)}};
}

report::Record TimingsRecord(const Answer& answer, const Choice& choice) {
  const runtime::GenerateTimings& t = choice.timings;
  return {{"cache_n", answer.prompts[choice.prompt].n_reused},
          {"prompt_n", t.n_prefill},
          {"prompt_ms", t.prefill_ms},
          {"prompt_per_token_ms", PerToken(t.prefill_ms, t.n_prefill)},
          {"prompt_per_second", t.prefill_tokens_per_second()},
          {"predicted_n", static_cast<int64_t>(choice.tokens.size())},
          {"predicted_ms", t.decode_ms},
          {"predicted_per_token_ms", PerToken(t.decode_ms, t.n_decode)},
          {"predicted_per_second", t.decode_tokens_per_second()}};
}

report::Record ProgressRecord(const Answer& answer, const Choice& choice,
                              const runtime::Event& prefill, double ms) {
  return {{"total", prefill.n_all},
          {"cache", answer.prompts[choice.prompt].n_reused},
          {"processed", prefill.n_done},
          {"time_ms", ms}};
}

std::string FinishReason(const Choice& choice) {
  using runtime::Finish;
  const bool by_itself = choice.finish == Finish::kStop || choice.finish == Finish::kStopString;
  if (!by_itself) return "length";
  return choice.tool_calls.empty() ? "stop" : "tool_calls";
}

}  // namespace winnow::server

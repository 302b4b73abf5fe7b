#include "statistics.h"

#include <cmath>

#include "base/fixed.h"
#include "base/machine.h"
#include "console.h"
#include "kv_flags.h"

namespace winnow::apps {
namespace {

std::string Line(const std::string& what, double ms) {
  std::string line = what;
  line.resize(12, ' ');
  return line + PadLeft(Fixed(ms, 1), 10) + " ms";
}

std::string Rate(int64_t n_tokens, double per_second) {
  return PadLeft(std::to_string(n_tokens), 8) + " tokens" + PadLeft(Fixed(per_second, 1), 10) +
         " tokens/s";
}

// ", 1024 of them kept (snapkv); with lists: 12.2 MiB; full f16: 98.0 MiB", and a line that
// explains the bytes.
std::string KvText(const Session& session) {
  std::string with_lists = "; with lists: " + HumanBytes(session.cache_bytes_with_lists());
  const SessionInfo info = session.info();
  if (info.method == "full") return with_lists;
  const double kept = MeanKept(session);
  std::string text =
      ", " + Fixed(kept, kept == std::floor(kept) ? 0 : 1) + " of them kept (" + info.method +
      (info.limited_by_budget ? ", limited by the budget of " + std::to_string(info.budget) : "") +
      ")";
  if (info.attended_share) text += ", " + Fixed(100 * *info.attended_share, 1) + " % attended";
  text += QualityText(session);
  const CacheParts parts = session.cache_parts();
  return text + with_lists + "; full f16: " + HumanBytes(session.cache_bytes_full_f16()) +
         "\n  of that   keys " + HumanBytes(parts.key_bytes) + ", values " +
         HumanBytes(parts.value_bytes) + ", method state " + HumanBytes(parts.method_bytes) +
         ", lists " + HumanBytes(parts.list_bytes);
}

}  // namespace

std::string QualityText(const Session& session) {
  const SessionInfo info = session.info();
  if (!info.quality) return "";
  const QualityInfo& quality = *info.quality;
  if (quality.tokens == 0) return ", no less met the quality asked for";
  return ", KL divergence about " + Fixed(quality.kl, 4) + " +- " +
         Fixed(quality.standard_error, 4) + " nats per token (" + std::to_string(quality.tokens) +
         " compared, 99 % below " + Fixed(quality.p99, 3) + ")";
}

std::string CacheSizeText(const Session& session) {
  return HumanBytes(session.cache_bytes()) + " (" + HumanBytes(session.cache_bytes_with_lists()) +
         " with lists) of " + HumanBytes(session.cache_bytes_full_f16()) + " in f16";
}

std::string StatisticsText(const Generation& generated, const Session& session, double load_ms) {
  std::string text = Line("load", load_ms) + "\n";
  text += Line("prefill", generated.prefill_ms) +
          Rate(generated.prefill_tokens, generated.prefill_tokens_per_second());
  if (generated.reused_tokens > 0)
    text += ", " + std::to_string(generated.reused_tokens) + " re-used";
  text += "\n" + Line("first token", generated.first_token_ms) + "\n";
  text += Line("decode", generated.decode_ms) +
          Rate(generated.decode_tokens, generated.decode_tokens_per_second()) + "\n";
  text += "cache       " + PadLeft(HumanBytes(session.cache_bytes()), 13) +
          PadLeft(std::to_string(session.tokens().size()), 8) + " tokens" + KvText(session) + "\n";
  text += "peak memory " + PadLeft(HumanBytes(PeakResidentBytes()), 13);
  return text;
}

report::Record StatisticsRecord(const Generation& generated, const Session& session,
                                double load_ms) {
  const CacheParts parts = session.cache_parts();
  return {
      {"text", generated.text},
      {"tokens", report::MakeList(generated.tokens)},
      {"prompt_tokens", generated.prompt_tokens},
      {"generated_tokens", static_cast<int64_t>(generated.tokens.size())},
      {"stop_reason", ToString(generated.stop_reason)},
      {"timings",
       report::Record{{"load_ms", load_ms},
                      {"prefill_ms", generated.prefill_ms},
                      {"first_token_ms", generated.first_token_ms},
                      {"decode_ms", generated.decode_ms},
                      {"prefill_tokens_per_second", generated.prefill_tokens_per_second()},
                      {"decode_tokens_per_second", generated.decode_tokens_per_second()}}},
      {"cache_bytes", session.cache_bytes()},
      {"cache_bytes_with_lists", session.cache_bytes_with_lists()},
      {"cache_bytes_full_f16", session.cache_bytes_full_f16()},
      {"cache_parts", report::Record{{"key_bytes", parts.key_bytes},
                                     {"value_bytes", parts.value_bytes},
                                     {"method_bytes", parts.method_bytes},
                                     {"list_bytes", parts.list_bytes}}},
      {"kv", KvRecord(session)},
      {"peak_rss_bytes", PeakResidentBytes()},
  };
}

}  // namespace winnow::apps

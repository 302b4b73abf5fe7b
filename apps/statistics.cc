#include "statistics.h"

#include <cmath>

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

// ", 1024 of them kept (snapkv); with lists: 12.2 MiB; full f16: 98.0 MiB".
std::string KvText(const runtime::Session& session) {
  const std::string with_lists = "; with lists: " + HumanBytes(session.cache_bytes_with_lists());
  const compression::MethodPtr& method = session.compression().method;
  if (!method) return with_lists;
  const double kept = MeanKept(session);
  std::string text = ", " + Fixed(kept, kept == std::floor(kept) ? 0 : 1) + " of them kept (" +
                     MethodName(session) + ")";
  if (method->traits().top_p < 1) {
    text += ", " + Fixed(100 * session.attended_share(), 1) + " % attended";
  }
  return text + with_lists + "; full f16: " + HumanBytes(session.cache_bytes_full_f16());
}

}  // namespace

std::string CacheSizeText(const runtime::Session& session) {
  return HumanBytes(session.cache_bytes()) + " (" + HumanBytes(session.cache_bytes_with_lists()) +
         " with lists) of " + HumanBytes(session.cache_bytes_full_f16()) + " in f16";
}

std::string StatisticsText(const runtime::Generated& generated, const runtime::Session& session,
                           double load_ms) {
  const runtime::GenerateTimings& t = generated.timings;
  std::string text = Line("load", load_ms) + "\n";
  text += Line("prefill", t.prefill_ms) + Rate(t.n_prefill, t.prefill_tokens_per_second());
  if (generated.n_reused > 0) text += ", " + std::to_string(generated.n_reused) + " re-used";
  text += "\n" + Line("first token", t.first_token_ms) + "\n";
  text += Line("decode", t.decode_ms) + Rate(t.n_decode, t.decode_tokens_per_second()) + "\n";
  text += "cache       " + PadLeft(HumanBytes(session.cache_bytes()), 13) +
          PadLeft(std::to_string(session.n_tokens()), 8) + " tokens" + KvText(session) + "\n";
  text += "peak memory " + PadLeft(HumanBytes(PeakResidentBytes()), 13);
  return text;
}

report::Record StatisticsRecord(const runtime::Generated& generated,
                                const runtime::Session& session, double load_ms) {
  const runtime::GenerateTimings& t = generated.timings;
  return {
      {"text", generated.text},
      {"tokens", report::MakeList(generated.tokens)},
      {"prompt_tokens", generated.n_prompt},
      {"generated_tokens", static_cast<int64_t>(generated.tokens.size())},
      {"stop_reason", ToString(generated.stop_reason)},
      {"timings", report::Record{{"load_ms", load_ms},
                                 {"prefill_ms", t.prefill_ms},
                                 {"first_token_ms", t.first_token_ms},
                                 {"decode_ms", t.decode_ms},
                                 {"prefill_tokens_per_second", t.prefill_tokens_per_second()},
                                 {"decode_tokens_per_second", t.decode_tokens_per_second()}}},
      {"cache_bytes", session.cache_bytes()},
      {"cache_bytes_with_lists", session.cache_bytes_with_lists()},
      {"cache_bytes_full_f16", session.cache_bytes_full_f16()},
      {"kv", KvRecord(session)},
      {"peak_rss_bytes", PeakResidentBytes()},
  };
}

}  // namespace winnow::apps

#include "eval/run/workload.h"

namespace winnow::eval {

void Fingerprint::AddBytes(const void* bytes, size_t n) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < n; ++i) hash_ = (hash_ ^ at[i]) * 0x100000001B3u;
}

Fingerprint& Fingerprint::Add(int64_t value) {
  AddBytes(&value, sizeof(value));
  return *this;
}

Fingerprint& Fingerprint::Add(std::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  AddBytes(text.data(), text.size());
  return *this;
}

Fingerprint& Fingerprint::Add(std::span<const TokenId> tokens) {
  Add(static_cast<int64_t>(tokens.size()));
  AddBytes(tokens.data(), tokens.size_bytes());
  return *this;
}

Fingerprint& Fingerprint::Add(std::span<const std::string> texts) {
  Add(static_cast<int64_t>(texts.size()));
  for (const std::string& text : texts) Add(text);
  return *this;
}

void MeasureCache(const runtime::Session& session, Outcome& outcome) {
  const int n_layers = session.cache().config().shape.n_layers;
  outcome.kept = 0;
  for (int layer = 0; layer < n_layers; ++layer) outcome.kept += session.kept(layer);
  outcome.kept /= n_layers;
  outcome.cache_bytes = session.cache_bytes();
  outcome.cache_bytes_with_lists = session.cache_bytes_with_lists();
  outcome.cache_bytes_full_f16 = session.cache_bytes_full_f16();
  outcome.quality = session.quality();
}

}  // namespace winnow::eval

// The replay of a prompt (compression::ReplaySpec).
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/session/session_data.h"

namespace winnow::runtime {
namespace {

// Minimum chunk in tokens: if there is only room for shorter ones, a replay says too little to be
// worth its time.
constexpr int64_t kMinChunk = 32;

}  // namespace

std::vector<Session::Data::ReplayPass> Session::Data::PlanReplay(
    std::span<const TokenId> added) const {
  const compression::ReplaySpec* spec = compressor.Replay();
  if (spec == nullptr) return {};
  const auto n = static_cast<int64_t>(added.size());
  const int64_t n_seen = n_tokens() + n;
  // The BOS token at the beginning of the text is not repeated.
  const std::optional<TokenId> bos = engine->tokenizer().bos();
  const int64_t first = n_tokens() == 0 && bos && added[0] == *bos ? 1 : 0;
  const auto encode = [&](const std::string& text) {
    return engine->tokenizer().Encode(text, {.add_special = false, .parse_special = false});
  };
  const std::vector<TokenId> text = encode(spec->text);
  const std::vector<TokenId> next_text = encode(spec->next_text);
  const auto n_text = static_cast<int64_t>(std::max(text.size(), next_text.size()));
  const int64_t n_slots = cache->capacity() + cache->transient_capacity();
  const int64_t room = std::min(n_slots - MaxHeld(), engine->model().context() - n_seen);
  const int64_t chunk = std::min(spec->chunk, room - n_text - spec->n_repeated);
  if (chunk < std::min({kMinChunk, spec->chunk, n - first})) return {};
  std::vector<ReplayPass> passes;
  for (int64_t at = first; at < n; at += chunk) {
    std::vector<TokenId> replayed = at == first ? text : next_text;
    for (int64_t i = std::max(first, at - spec->n_repeated); i < at; ++i) {
      replayed.push_back(added[static_cast<size_t>(i)]);
    }
    const compression::ReplayChunk one = {
        .first = at, .n = std::min(chunk, n - at), .n_text = static_cast<int64_t>(replayed.size())};
    const auto repeated = added.subspan(static_cast<size_t>(one.first), static_cast<size_t>(one.n));
    replayed.insert(replayed.end(), repeated.begin(), repeated.end());
    passes.push_back({.chunk = one,
                      .tokens = std::move(replayed),
                      .first = static_cast<cache::Position>(n_seen),
                      .rows = spec->rows});
  }
  if (spec->rows.which != attention::RowSpec::Which::kEven) return passes;
  // ReplaySpec::rows counts the rows of the whole replay: divide them among the passes.
  size_t n_all = 0;
  for (const ReplayPass& pass : passes) n_all += pass.tokens.size();
  for (ReplayPass& pass : passes) {
    const double part = static_cast<double>(pass.tokens.size()) / static_cast<double>(n_all);
    pass.rows.n = std::max<int64_t>(1, std::llround(part * static_cast<double>(spec->rows.n)));
  }
  return passes;
}

model::TokenSpan Session::Data::BeginReplay(const ReplayPass& pass) {
  compressor.BeginReplay(pass.chunk, static_cast<int64_t>(pass.tokens.size()));
  const compression::ReplaySpec& spec = *compressor.Replay();
  model::TokenSpan span = {.sequence = {.cache = cache.get(), .taps = spec.taps, .rows = pass.rows},
                           .tokens = pass.tokens,
                           .first_position = pass.first};
  span.sequence.after_layer =
      [this, first = pass.first](const attention::LayerDone& done) -> Result<void> {
    Result<void> seen = compressor.AfterReplayLayer(*cache, done);
    cache->TruncateLayer(done.layer, first);
    return seen;
  };
  return span;
}

}  // namespace winnow::runtime

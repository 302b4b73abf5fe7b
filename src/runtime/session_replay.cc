// The replay of a prompt (compression::ReplaySpec).
#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/session_data.h"

namespace winnow::runtime {
namespace {

// Where there is no room for as many tokens at a time, a replay says too little to be worth it.
constexpr int64_t kMinChunk = 32;

// Where a replay stands in the work of a prompt: about as much again, and the decision after it.
constexpr double kReplayFrom = 0.4;
constexpr double kReplayTo = 0.9;

}  // namespace

Result<bool> Session::Data::RunAndDecide(const model::TokenSpan& span,
                                         std::span<const TokenId> added, const Part& part) {
  Part of_prompt = part;
  of_prompt.to = compressor.Replay() != nullptr ? kReplayFrom : kReplayTo;
  WINNOW_ASSIGN(bool finished, Run(span, of_prompt));
  if (!finished) return false;
  WINNOW_ASSIGN(finished, Replay(added, part));
  if (!finished) return false;
  compressor.DecideAll(*cache);
  return part.KeepsGoing(1);
}

Result<bool> Session::Data::Replay(std::span<const TokenId> added, const Part& part) {
  const compression::ReplaySpec* spec = compressor.Replay();
  if (spec == nullptr) return true;
  const auto n = static_cast<int64_t>(added.size());
  const int64_t n_seen = n_tokens() + n;
  // The text's first token is no part of what is to be repeated.
  const std::optional<TokenId> bos = engine->tokenizer().bos();
  const int64_t first = n_tokens() == 0 && bos && added[0] == *bos ? 1 : 0;
  const auto encode = [&](const std::string& text) {
    return engine->tokenizer().Encode(text, {.add_special = false, .parse_special = false});
  };
  const std::vector<TokenId> text = encode(spec->text);
  const std::vector<TokenId> next_text = encode(spec->next_text);
  const auto n_text = static_cast<int64_t>(std::max(text.size(), next_text.size()));
  const int64_t room = std::min(cache->capacity() - MaxHeld(), engine->model().context() - n_seen);
  const int64_t chunk = std::min(spec->chunk, room - n_text - spec->n_repeated);
  if (chunk < std::min(kMinChunk, n - first)) return true;
  for (int64_t at = first; at < n; at += chunk) {
    std::vector<TokenId> before = at == first ? text : next_text;
    for (int64_t i = std::max(first, at - spec->n_repeated); i < at; ++i) {
      before.push_back(added[static_cast<size_t>(i)]);
    }
    const compression::ReplayChunk one = {
        .first = at, .n = std::min(chunk, n - at), .n_text = static_cast<int64_t>(before.size())};
    WINNOW_ASSIGN(const bool finished, ReplayChunk(added, one, before, part));
    if (!finished) return false;
  }
  return true;
}

Result<bool> Session::Data::ReplayChunk(std::span<const TokenId> added,
                                        const compression::ReplayChunk& chunk,
                                        std::span<const TokenId> text, const Part& part) {
  std::vector<TokenId> replayed(text.begin(), text.end());
  const auto repeated =
      added.subspan(static_cast<size_t>(chunk.first), static_cast<size_t>(chunk.n));
  replayed.insert(replayed.end(), repeated.begin(), repeated.end());
  const auto n = static_cast<int64_t>(replayed.size());
  const auto first = static_cast<cache::Position>(n_tokens() + std::ssize(added));
  compressor.BeginReplay(chunk, n);
  const compression::ReplaySpec& spec = *compressor.Replay();
  model::TokenSpan span = {.sequence = {.cache = cache.get(), .taps = spec.taps, .rows = spec.rows},
                           .tokens = replayed,
                           .first_position = first};
  span.sequence.after_layer = [&](const attention::LayerDone& done) -> Result<void> {
    compressor.AfterReplayLayer(*cache, done);
    cache->TruncateLayer(done.layer, first);
    return {};
  };
  Part of_chunk = part;
  const double n_call = static_cast<double>(added.size());
  const auto share = [&](int64_t token) {
    return kReplayFrom + (kReplayTo - kReplayFrom) * static_cast<double>(token) / n_call;
  };
  of_chunk.from = share(chunk.first);
  of_chunk.to = share(chunk.first + chunk.n);
  return Run(span, of_chunk);
}

}  // namespace winnow::runtime

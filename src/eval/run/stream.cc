#include "eval/run/stream.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace winnow::eval {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::TokenId;

constexpr int64_t kBlock = 256;     // tokens read at a time where nothing is evicted
constexpr int64_t kPassed = 16384;  // tokens that were scored and may still be held

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A stretch of the text that moves forward.
class TokenWindow {
 public:
  explicit TokenWindow(const NextTokens& next) : next_(next) {}

  // Holds tokens first..end-1; those before `first` go. Error: the text has not so many.
  Result<void> Load(int64_t first, int64_t end) {
    if (first - first_ > kPassed) {
      tokens_.erase(tokens_.begin(), tokens_.begin() + (first - first_));
      first_ = first;
    }
    while (first_ + static_cast<int64_t>(tokens_.size()) < end) {
      WINNOW_ASSIGN(const bool more, next_(tokens_));
      if (!more) return Error{"the text has fewer than " + std::to_string(end) + " tokens"};
    }
    return {};
  }
  TokenId operator[](int64_t i) const { return tokens_[static_cast<size_t>(i - first_)]; }
  std::span<const TokenId> Part(int64_t first, int64_t n) const {
    return std::span(tokens_).subspan(static_cast<size_t>(first - first_), static_cast<size_t>(n));
  }

 private:
  const NextTokens& next_;
  int64_t first_ = 0;
  std::vector<TokenId> tokens_;
};

}  // namespace

Result<StreamPoint> ScoreStream(runtime::Session& session, std::span<const TokenId> tokens,
                                const StreamOptions& options) {
  size_t at = 0;
  const NextTokens next = [&](std::vector<TokenId>& more) -> Result<bool> {
    const size_t n = std::min(tokens.size() - at, static_cast<size_t>(kBlock));
    more.insert(more.end(), tokens.begin() + static_cast<ptrdiff_t>(at),
                tokens.begin() + static_cast<ptrdiff_t>(at + n));
    at += n;
    return n > 0;
  };
  return ScoreStream(session, next, static_cast<int64_t>(tokens.size()), options);
}

Result<StreamPoint> ScoreStream(runtime::Session& session, const NextTokens& next_tokens,
                                int64_t n_tokens, const StreamOptions& options) {
  if (n_tokens < 2) {
    return Error{"the text has " + std::to_string(n_tokens) + " tokens, expected at least 2"};
  }
  const auto vocabulary =
      static_cast<size_t>(session.engine().model().hyperparameters().vocabulary);
  if (options.score_from < 1 || options.score_from >= n_tokens) {
    return Error{"tokens from " + std::to_string(options.score_from) + " on are to be scored of " +
                 std::to_string(n_tokens)};
  }
  const runtime::CompressionOptions& compression = session.compression();
  const bool decodes = compression.method && compression.prefill_chunk == 0;
  int64_t chunk = compression.prefill_chunk;
  if (chunk == 0) chunk = compression.method ? 1 : std::clamp<int64_t>(options.every, 1, kBlock);
  TokenWindow tokens(next_tokens);
  StreamPoint point;
  MeanEstimate recent;
  Clock::time_point last_point = Clock::now();

  const auto score = [&](int64_t first_token, std::span<const float> logits) {
    for (size_t at = 0; at < logits.size(); at += vocabulary) {
      const auto next = first_token + static_cast<int64_t>(at / vocabulary) + 1;
      if (next >= n_tokens) return;
      if (next < options.score_from) continue;
      const std::span<const float> row = logits.subspan(at, vocabulary);
      const double nll = LogSumExp(row) - row[static_cast<size_t>(tokens[next])];
      point.nll.Add(nll);
      recent.Add(nll);
    }
  };
  const auto tell = [&] {
    point.recent_nll = recent.mean();
    point.recent_seconds = SecondsSince(last_point);
    if (options.on_point) options.on_point(point);
    recent = {};
    last_point = Clock::now();
  };

  session.Reset();
  int64_t told = 0;
  while (point.n_tokens < n_tokens) {
    const int64_t n = std::min(chunk, n_tokens - point.n_tokens);
    WINNOW_TRY(tokens.Load(point.n_tokens, std::min(n_tokens, point.n_tokens + n + 1)));
    if (decodes) {
      WINNOW_TRY(session.Decode(tokens[point.n_tokens]));
      score(point.n_tokens, session.logits());
    } else {
      runtime::Session::PrefillOptions prefill;
      prefill.logits_from = 0;
      prefill.on_logits = [&](int64_t first_row, std::span<const float> logits) {
        score(point.n_tokens + first_row, logits);
      };
      WINNOW_TRY(session.Prefill(tokens.Part(point.n_tokens, n), prefill));
    }
    point.n_tokens += n;
    if (point.n_tokens - told >= options.every) {
      tell();
      told = point.n_tokens;
    }
    if (options.progress &&
        !options.progress(static_cast<double>(point.n_tokens) / static_cast<double>(n_tokens))) {
      break;
    }
  }
  if (point.n_tokens > told) tell();
  return point;
}

}  // namespace winnow::eval

#include "eval/run/stream.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/log_sum_exp.h"
#include "runtime/generate/score.h"

namespace winnow::eval {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::TokenId;

constexpr int64_t kBlock = 256;     // tokens read at once if nothing is evicted
constexpr int64_t kPassed = 16384;  // tokens already scored that may still be held

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A window of the text that moves forward.
class TokenWindow {
 public:
  explicit TokenWindow(const NextTokens& next) : next_(next) {}

  // Holds tokens first..end-1 and drops those long before `first`. Error: the text has fewer
  // tokens.
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

int64_t StreamChunk(bool has_method, int64_t prefill_chunk, int64_t every) {
  if (prefill_chunk > 0) return prefill_chunk;
  return has_method ? 1 : std::clamp<int64_t>(every, 1, kBlock);
}

StreamReader ReaderFrom(runtime::Session& session, int64_t every) {
  const runtime::CompressionOptions& compression = session.compression();
  StreamReader reader;
  reader.n_at_once = StreamChunk(compression.method != nullptr, compression.prefill_chunk, every);
  reader.logits = [&session] { return session.logits(); };
  const int64_t n_prompt = compression.prefill_chunk > 0 ? -1 : 0;
  reader.score = [&session, n_prompt](std::span<const TokenId> tokens) {
    std::vector<double> scores(tokens.size());
    runtime::ScoreOptions options = {.first = 1, .n_prompt = n_prompt};
    options.on_rows = [&](const runtime::LogitRows& rows) {
      std::ranges::copy(rows.log_probabilities, scores.begin() + rows.first + 1);
    };
    const Result<bool> done = runtime::Score(session, tokens, options);
    return done ? Result<std::vector<double>>(std::move(scores)) : done.error();
  };
  return reader;
}

Result<StreamPoint> ScoreStream(const StreamReader& reader, std::span<const TokenId> tokens,
                                const StreamOptions& options) {
  size_t at = 0;
  const NextTokens next = [&](std::vector<TokenId>& more) -> Result<bool> {
    const size_t n = std::min(tokens.size() - at, static_cast<size_t>(kBlock));
    more.insert(more.end(), tokens.begin() + static_cast<ptrdiff_t>(at),
                tokens.begin() + static_cast<ptrdiff_t>(at + n));
    at += n;
    return n > 0;
  };
  return ScoreStream(reader, next, static_cast<int64_t>(tokens.size()), options);
}

Result<StreamPoint> ScoreStream(const StreamReader& reader, const NextTokens& next_tokens,
                                int64_t n_tokens, const StreamOptions& options) {
  if (n_tokens < 2) {
    return Error{"the text has " + std::to_string(n_tokens) + " tokens, expected at least 2"};
  }
  if (options.score_from < 1 || options.score_from >= n_tokens) {
    return Error{"tokens from " + std::to_string(options.score_from) + " on are to be scored of " +
                 std::to_string(n_tokens)};
  }
  TokenWindow tokens(next_tokens);
  StreamPoint point;
  MeanEstimate recent;
  Clock::time_point last_point = Clock::now();

  const auto add = [&](int64_t token, double log_probability) {
    if (token < options.score_from) return;
    point.nll.Add(-log_probability);
    recent.Add(-log_probability);
  };
  const auto tell = [&] {
    point.recent_nll = recent.mean();
    point.recent_seconds = SecondsSince(last_point);
    if (options.on_point) options.on_point(point);
    recent = {};
    last_point = Clock::now();
  };

  int64_t told = 0;
  while (point.n_tokens < n_tokens) {
    const int64_t n = std::min(reader.n_at_once, n_tokens - point.n_tokens);
    WINNOW_TRY(tokens.Load(point.n_tokens, std::min(n_tokens, point.n_tokens + n + 1)));
    WINNOW_ASSIGN(const std::vector<double> scores, reader.score(tokens.Part(point.n_tokens, n)));
    for (int64_t i = 1; i < n; ++i) add(point.n_tokens + i, scores[static_cast<size_t>(i)]);
    point.n_tokens += n;
    if (point.n_tokens < n_tokens) {
      const std::span<const float> logits = reader.logits();
      const auto next = static_cast<size_t>(tokens[point.n_tokens]);
      add(point.n_tokens, logits[next] - LogSumExp(logits));
    }
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

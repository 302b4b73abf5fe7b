#include "eval/run/equal_bytes.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace winnow::eval {
namespace {

using runtime::Session;
using runtime::SessionOptions;

constexpr double kCloseEnough = 0.99;  // of the allowed bytes
constexpr int kMaxTrials = 12;
// A secant this much steeper or flatter than the proportional line does not predict other sizes.
constexpr double kMaxBend = 4;

// The prompt, compressed to `size`. nullptr: stopped.
Result<std::unique_ptr<Session>> Compress(runtime::Engine& engine, SessionOptions options,
                                          int64_t size, std::span<const TokenId> prompt,
                                          const std::function<bool()>& keep_going,
                                          UndecidedPromptCache& learnt) {
  options.compression.size = size;
  options.compression.on_plan = {};
  options.on_projections = {};
  if (size < std::ssize(prompt) && runtime::UndecidedPrompt::IsPossible(options)) {
    return learnt.Compress(engine, options, prompt, keep_going);
  }
  WINNOW_ASSIGN(std::unique_ptr<Session> session, Session::Make(engine, options));
  Session::PrefillOptions prefill;
  prefill.progress = [&](double) { return !keep_going || keep_going(); };
  WINNOW_ASSIGN(const bool finished, session->Prefill(prompt, prefill));
  if (!finished) session.reset();
  return session;
}

// The bytes that one more entry in every KV head takes, its lists included.
Result<double> BytesPerSize(runtime::Engine& engine, SessionOptions options, int64_t smallest) {
  options.compression.size = smallest;
  WINNOW_ASSIGN(const auto session, Session::Make(engine, options));
  const cache::Cache& cache = session->cache();
  const cache::CacheShape& shape = cache.config().shape;
  int64_t bytes = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    bytes += shape.layer(layer).n_kv_heads *
             (cache.bytes_per_slot(layer) + cache.state_bytes_per_slot() +
              cache.max_list_bytes_per_slot());
  }
  return static_cast<double>(bytes);
}

}  // namespace

SizeSearch::SizeSearch(const Limits& limits)
    : limits_(limits),
      fits_(limits.smallest - 1),
      exceeds_(limits.largest + 1),
      next_(Within(limits.bytes / limits.bytes_per_size)) {}

int64_t SizeSearch::Within(double size) const {
  // Clamp first: a double outside the range must not be converted to an integer.
  return static_cast<int64_t>(
      std::clamp(size, static_cast<double>(fits_ + 1), static_cast<double>(exceeds_ - 1)));
}

std::optional<int64_t> SizeSearch::next() const {
  if (done_ || exceeds_ - fits_ <= 1) return std::nullopt;
  return next_;
}

void SizeSearch::Add(double bytes) {
  const int64_t size = next_;
  const bool fits = bytes <= limits_.bytes;
  (fits ? fits_ : exceeds_) = size;
  ++n_tried_;
  done_ = n_tried_ == kMaxTrials || (fits && (bytes >= kCloseEnough * limits_.bytes ||
                                              bytes + limits_.bytes_per_size > limits_.bytes));
  if (exceeds_ - fits_ <= 1) return;
  if (n_tried_ < kMaxTrials / 2) {
    // Assume that bytes grow in proportion to the size, or along the line through the last two
    // sizes.
    double slope = bytes / static_cast<double>(size);
    if (n_tried_ > 1) {
      const double line = (bytes - last_bytes_) / static_cast<double>(size - last_size_);
      if (line > slope / kMaxBend && line < slope * kMaxBend) slope = line;
    }
    // If the search moves in the same direction again, it moves at least twice as far.
    const double again = n_tried_ > 1 && fits == last_fits_
                             ? 2 * std::abs(static_cast<double>(size - last_size_))
                             : 1;
    const double step = std::max(again, std::abs(limits_.bytes - bytes) / slope);
    next_ = Within(static_cast<double>(size) + (fits ? step : -step));
  } else {
    next_ = fits_ + (exceeds_ - fits_) / 2;
  }
  last_size_ = size;
  last_bytes_ = bytes;
  last_fits_ = fits;
}

bool UndecidedPromptCache::Holds(const SessionOptions& options,
                                 std::span<const TokenId> prompt) const {
  return prompt_ &&
         options_.compression.method->traits().spec == options.compression.method->traits().spec &&
         options_.key_type == options.key_type && options_.value_type == options.value_type &&
         options_.rotate_keys == options.rotate_keys && options_.context == options.context &&
         std::ranges::equal(prompt_->tokens(), prompt);
}

Result<std::unique_ptr<Session>> UndecidedPromptCache::Compress(
    runtime::Engine& engine, const SessionOptions& options, std::span<const TokenId> prompt,
    const std::function<bool()>& keep_going) {
  if (!Holds(options, prompt)) {
    prompt_.reset();
    options_ = options;
    WINNOW_ASSIGN(prompt_, runtime::UndecidedPrompt::Read(engine, options, prompt, [&](double) {
                    return !keep_going || keep_going();
                  }));
    if (!prompt_) return std::unique_ptr<Session>();
  } else if (keep_going && !keep_going()) {
    return std::unique_ptr<Session>();
  }
  return prompt_->Compress(options.compression.size);
}

std::string Candidate::Name() const {
  if (!compression.method) return "full";
  return compression.method->traits().spec + (budget.empty() ? "" : " " + budget);
}

Result<std::optional<EqualBytes>> AtEqualBytes(runtime::Engine& engine,
                                               const SessionOptions& options, double share,
                                               std::span<const TokenId> prompt,
                                               const std::function<bool()>& keep_going,
                                               UndecidedPromptCache* learnt) {
  EqualBytes found = {.options = options};
  UndecidedPromptCache here;
  if (learnt == nullptr) learnt = &here;
  found.options.compression.ratio = 0;
  found.options.compression.memory_bytes = 0;
  const int64_t smallest = std::max<int64_t>(1, options.compression.method->traits().budget.min);
  const int64_t n_prompt = std::ssize(prompt);
  const int64_t full = n_prompt * engine.model().cache_shape().f16_bytes_per_token();
  WINNOW_ASSIGN(const double bytes_per_size, BytesPerSize(engine, found.options, smallest));
  SizeSearch search({.smallest = smallest,
                     .largest = std::max(n_prompt, smallest),
                     .bytes = share * static_cast<double>(full),
                     .bytes_per_size = bytes_per_size});
  while (const std::optional<int64_t> size = search.next()) {
    WINNOW_ASSIGN(std::unique_ptr<Session> session,
                  Compress(engine, found.options, *size, prompt, keep_going, *learnt));
    if (!session) return std::optional<EqualBytes>();
    search.Add(static_cast<double>(session->cache_bytes_with_lists()));
    if (search.found() == *size) found.session = std::move(session);
  }
  found.options.compression.size = search.found();
  return std::optional(std::move(found));
}

namespace {

// The options, and perhaps a session, that a workload asks for. nullopt: stopped.
Result<std::optional<EqualBytes>> Choose(const RunContext& run_context,
                                         std::span<const TokenId> prompt) {
  const SessionOptions& options = run_context.options;
  if (run_context.equal_bytes <= 0 || !options.compression.method) {
    return std::optional(EqualBytes{.options = options});
  }
  return AtEqualBytes(
      run_context.engine, options, run_context.equal_bytes, prompt,
      [&] { return run_context.KeepGoing(0); }, run_context.learnt);
}

}  // namespace

Result<std::optional<SessionOptions>> OptionsFor(const RunContext& run_context,
                                                 std::span<const TokenId> prompt) {
  WINNOW_ASSIGN(auto chosen, Choose(run_context, prompt));
  if (!chosen) return std::optional<SessionOptions>();
  return std::optional(std::move(chosen->options));
}

Result<std::unique_ptr<Session>> MakeSession(const RunContext& run_context,
                                             std::span<const TokenId> prompt) {
  WINNOW_ASSIGN(auto chosen, Choose(run_context, prompt));
  if (!chosen) return std::unique_ptr<Session>();
  if (chosen->session) return std::move(chosen->session);
  return Session::Make(run_context.engine, chosen->options);
}

Result<std::unique_ptr<Session>> ReadPrompt(const RunContext& run_context,
                                            std::span<const TokenId> prompt, double share) {
  WINNOW_ASSIGN(std::unique_ptr<Session> session, MakeSession(run_context, prompt));
  if (!session || session->n_tokens() > 0) return session;
  Session::PrefillOptions options;
  options.progress = [&](double done) { return run_context.KeepGoing(share * done); };
  WINNOW_ASSIGN(const bool read, session->Prefill(prompt, options));
  if (!read) session.reset();
  return session;
}

}  // namespace winnow::eval

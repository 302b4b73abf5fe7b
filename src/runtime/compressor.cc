#include "runtime/compressor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace winnow::runtime {
namespace {

using compression::Phase;

// Less than this is read from the processor's caches anyway, or nearly.
constexpr int64_t kGatherFromBytes = 8 << 20;

// Tokens of a text that never ends.
constexpr int64_t kEndless = int64_t{1} << 40;

int64_t LongestHead(const cache::Cache& cache, int layer) {
  int64_t longest = 0;
  for (int head = 0; head < cache.config().shape.n_kv_heads; ++head) {
    longest = std::max(longest, cache.n_slots(layer, head));
  }
  return longest;
}

int64_t LongestHead(const cache::Cache& cache) {
  int64_t longest = 0;
  for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
    longest = std::max(longest, LongestHead(cache, layer));
  }
  return longest;
}

// Bytes of `n_rows` stored rows and `n_slots` slots, each counted once for every KV head.
int64_t Bytes(const cache::Cache& cache, int64_t n_rows, int64_t n_slots) {
  return cache.config().shape.n_kv_heads *
         (n_rows * cache.bytes_per_slot() + n_slots * cache.state_bytes_per_slot());
}

// State that does not depend on the number of slots.
int64_t FixedBytes(const cache::Cache& cache) {
  const cache::CacheConfig& config = cache.config();
  return static_cast<int64_t>(sizeof(double)) * config.shape.n_layers *
         (config.state.n_layer_numbers +
          int64_t{config.state.n_head_numbers} * config.shape.n_kv_heads);
}

// "0.05": as few digits as tell it apart.
std::string Shortest(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), number).ptr};
}

}  // namespace

Result<void> Compressor::Check(const CompressionOptions& options) {
  const int n_budgets = (options.size != 0 ? 1 : 0) + (options.ratio != 0 ? 1 : 0) +
                        (options.memory_bytes != 0 ? 1 : 0);
  if (n_budgets > 1) {
    return Error{"cache budget: found " + std::to_string(n_budgets) +
                 ", expected one of slots, share of the prompt, bytes"};
  }
  if (options.size < 0) {
    return Error{"cache budget: found " + std::to_string(options.size) +
                 " slots per KV head, expected 1 or more"};
  }
  if (!(options.ratio >= 0 && options.ratio <= 1)) {
    return Error{"cache budget: found a share of " + std::to_string(options.ratio) +
                 " of the prompt, expected more than 0 and at most 1"};
  }
  if (options.memory_bytes < 0 || options.prefill_chunk < 0) {
    return Error{"cache budget: bytes and chunks are not negative"};
  }
  if (!options.method) {
    if (options.size != 0 || options.ratio != 0) {
      return Error{"cache budget: the full cache has none; name a method"};
    }
    return {};
  }
  const compression::Traits& traits = options.method->traits();
  if (traits.needs_budget && n_budgets == 0) {
    return Error{traits.spec +
                 ": needs a budget: slots per KV head, a share of the prompt, or bytes"};
  }
  if (options.size != 0 && options.size < traits.min_budget) {
    return Error{traits.spec + ": a budget of " + std::to_string(options.size) +
                 " slots per KV head is too small, it needs at least " +
                 std::to_string(traits.min_budget)};
  }
  return {};
}

void Compressor::Shape(const CompressionOptions& options, int64_t trained_context,
                       cache::CacheConfig& config) {
  if (!options.method) return;
  const compression::Traits& traits = options.method->traits();
  config.positions = traits.positions;
  config.distance_cap = traits.distance_cap > 0 ? traits.distance_cap : trained_context;
  config.state = options.method->needs().state;
  config.shared_rows = traits.shared_rows;
  // With capped distances a prompt may come one token at a time, as what is generated does.
  if (traits.evicts_in_decode && traits.positions != cache::PositionMode::kCapped) {
    config.gather_from_bytes = kGatherFromBytes;
  }
}

bool Compressor::Compresses(Phase phase) const {
  if (!active()) return false;
  const compression::Traits& traits = options_.method->traits();
  return phase == Phase::kPrefill ? traits.compresses_prefill : traits.evicts_in_decode;
}

bool Compressor::Holds(const cache::Cache& cache) const {
  return Compresses(Phase::kDecode) && Sizes(cache);
}

bool Compressor::Sizes(const cache::Cache& cache) const {
  const compression::Method& method = *options_.method;
  const int64_t least = method.traits().min_budget;
  return method.TotalSlots(least, kEndless, cache.config().shape.n_layers) < kEndless;
}

// Layers before the one at work are compressed, those after it hold what they held; the one at work
// holds n_slots.
int64_t Compressor::PeakBytes(const cache::Cache& cache, int64_t budget, int64_t n_slots) const {
  const int n_layers = cache.config().shape.n_layers;
  const compression::Method& method = *options_.method;
  const int64_t full_layer = Bytes(cache, n_slots, n_slots);
  const bool has_size = method.traits().needs_budget || budget > 0;
  if (method.traits().waits_for_all_layers || !has_size) {
    return FixedBytes(cache) + n_layers * full_layer;
  }
  const int64_t slots = method.TotalSlots(budget, n_slots, n_layers);
  const int64_t rows = method.TotalRows(budget, n_slots, n_layers);
  int64_t compressed = Bytes(cache, rows, slots);
  // Where all layers have the same size, one of them is the layer at work.
  if (slots == method.MostSlots(budget, n_slots) * n_layers) {
    compressed -= compressed / n_layers;
  }
  return FixedBytes(cache) + compressed + full_layer;
}

// The most that the prompt, and the tokens generated after it, will need.
int64_t Compressor::PromptBytes(const cache::Cache& cache, int64_t budget, int64_t n_prompt,
                                int64_t n_call) const {
  const compression::Method& method = *options_.method;
  const int n_layers = cache.config().shape.n_layers;
  const int64_t n = LongestHead(cache) + n_prompt;
  const int64_t first = LongestHead(cache) + n_call;
  // Later chunks and generated tokens find the cache at its size.
  const auto most_held = [&](int64_t n_tokens) {
    // Where the heads of a layer compete one may hold nearly all, but not of all layers together.
    return std::min({n_tokens, method.MostSlots(budget, n_tokens),
                     method.TotalSlots(budget, n_tokens, n_layers)});
  };
  const int64_t held = most_held(n);
  const int64_t later =
      n_call < n_prompt ? std::min(n, held + n_call) : held + (Holds(cache) ? 1 : 0);
  int64_t bytes = PeakBytes(cache, budget, std::max(first, later));
  if (!Holds(cache)) {
    // Where the budget is nothing to the size, none is left for what is generated.
    const bool sizes = method.traits().needs_budget || Sizes(cache);
    const int64_t grown = sizes ? options_.reserve_tokens * n_layers : 0;
    bytes = std::max(bytes,
                     FixedBytes(cache) + Bytes(cache, method.TotalRows(budget, n, n_layers) + grown,
                                               method.TotalSlots(budget, n, n_layers) + grown));
  } else {
    // A prompt shorter than the budget grows to it, and one more.
    bytes = std::max(bytes, PeakBytes(cache, budget, most_held(cache.capacity()) + 1));
  }
  return bytes;
}

Result<void> Compressor::BeginPrompt(const cache::Cache& cache, int64_t n_prompt, int64_t n_call) {
  WINNOW_ASSIGN(const int64_t budget, BudgetFor(cache, n_prompt, std::min(n_call, n_prompt)));
  if (LongestHead(cache) + n_prompt > cache.capacity() && !Streams(cache, budget)) {
    return Error{"cache: a budget of " + std::to_string(budget) +
                 " slots per KV head fills the context of " + std::to_string(cache.capacity()) +
                 " tokens before anything is evicted; longer texts need " +
                 std::to_string(LargestStreamingBudget(cache)) + " or less"};
  }
  budget_ = budget;
  return {};
}

int64_t Compressor::SmallestBudget() const {
  if (budget_ != 0) return budget_;
  if (options_.size != 0) return options_.size;
  return active() ? options_.method->traits().min_budget : 0;
}

bool Compressor::Streams(const cache::Cache& cache, int64_t budget) const {
  const cache::PositionMode positions = cache.config().positions;
  if (positions == cache::PositionMode::kOriginal || positions == cache::PositionMode::kText ||
      !Compresses(Phase::kDecode)) {
    return false;
  }
  const int64_t n_call = std::max<int64_t>(1, options_.prefill_chunk);
  return options_.method->MostSlots(budget, cache.capacity()) + n_call <= cache.capacity();
}

int64_t Compressor::LargestStreamingBudget(const cache::Cache& cache) const {
  int64_t streams = 0;
  int64_t too_many = cache.capacity() + 1;
  while (too_many - streams > 1) {
    const int64_t middle = streams + (too_many - streams) / 2;
    (Streams(cache, middle) ? streams : too_many) = middle;
  }
  return active() && streams >= options_.method->traits().min_budget ? streams : 0;
}

Result<int64_t> Compressor::BudgetFor(const cache::Cache& cache, int64_t n_prompt,
                                      int64_t n_call) const {
  const int64_t smallest = active() ? options_.method->traits().min_budget : 1;
  if (options_.size != 0) return options_.size;
  if (options_.ratio != 0) {
    const auto share =
        static_cast<int64_t>(std::floor(options_.ratio * static_cast<double>(n_seen_ + n_prompt)));
    if (share < smallest) {
      return Error{"cache budget: a share of " + Shortest(options_.ratio) + " of " +
                   std::to_string(n_seen_ + n_prompt) + " tokens is " + std::to_string(share) +
                   " slots per KV head, " + (active() ? options_.method->traits().spec : "full") +
                   " needs at least " + std::to_string(smallest)};
    }
    return share;
  }
  if (active() && options_.memory_bytes != 0) {
    const auto peak = [&](int64_t budget) { return PromptBytes(cache, budget, n_prompt, n_call); };
    if (peak(smallest) > options_.memory_bytes) {
      std::string message = "cache: a prompt of " + std::to_string(n_prompt) + " tokens needs " +
                            std::to_string(peak(smallest)) + " bytes at its peak, " +
                            std::to_string(options_.memory_bytes) + " are allowed";
      if (n_call > 1 && PromptBytes(cache, smallest, n_prompt, 1) < peak(smallest)) {
        message += "; taken in smaller chunks (--prefill-chunk) it needs less";
      }
      return Error{message};
    }
    int64_t fits = smallest;
    // Where a text may be longer than the cache, it stays so.
    int64_t too_many =
        1 + (Streams(cache, smallest) ? LargestStreamingBudget(cache) : cache.capacity());
    while (too_many - fits > 1) {
      const int64_t middle = fits + (too_many - fits) / 2;
      (peak(middle) <= options_.memory_bytes ? fits : too_many) = middle;
    }
    return fits;
  }
  return budget_;
}

Result<Footprint> Compressor::FootprintOf(const cache::Cache& cache, int64_t n_prompt,
                                          int64_t n_call, int64_t n_generate) const {
  const int n_layers = cache.config().shape.n_layers;
  const int64_t n_total = n_prompt + n_generate;
  const auto uncompressed = [&](int64_t n) {
    return FixedBytes(cache) + Bytes(cache, n_layers * n, n_layers * n);
  };
  Footprint footprint = {.prefill_bytes = uncompressed(n_prompt),
                         .decode_bytes = uncompressed(n_total)};
  if (!active()) return footprint;
  n_call = std::min(n_call, n_prompt);
  // Without a prompt the first generated token stands for it.
  WINNOW_ASSIGN(const int64_t budget,
                BudgetFor(cache, std::max<int64_t>(1, n_prompt), std::max<int64_t>(1, n_call)));
  const compression::Method& method = *options_.method;
  if (Compresses(Phase::kPrefill)) {
    // Chunks after the first find the cache at its size.
    const int64_t later = n_call < n_prompt ? method.MostSlots(budget, n_prompt) + n_call : 0;
    footprint.prefill_bytes = PeakBytes(cache, budget, std::min(n_prompt, std::max(n_call, later)));
  }
  if (Compresses(Phase::kDecode)) {
    const int64_t most = Compresses(Phase::kPrefill)
                             ? std::min(n_total, method.MostSlots(budget, n_total) + 1)
                             : std::min(n_total, n_prompt + 1);
    footprint.decode_bytes = PeakBytes(cache, budget, most);
  } else if (Compresses(Phase::kPrefill)) {
    const int64_t n_grown = n_generate * n_layers;
    footprint.decode_bytes =
        FixedBytes(cache) + Bytes(cache, method.TotalRows(budget, n_prompt, n_layers) + n_grown,
                                  method.TotalSlots(budget, n_prompt, n_layers) + n_grown);
  }
  return footprint;
}

Result<void> Compressor::CheckCall(const cache::Cache& cache, Phase phase, int64_t n_call) const {
  if (options_.memory_bytes != 0) {
    const int64_t n_added = n_call * cache.config().shape.n_layers;
    int64_t peak = cache.live_bytes() + Bytes(cache, n_added, n_added);
    if (Compresses(phase)) {
      peak = std::min(peak, PeakBytes(cache, budget_, LongestHead(cache) + n_call));
    }
    if (peak > options_.memory_bytes) {
      return Error{"cache: " + std::to_string(n_call) + " more tokens need " +
                   std::to_string(peak) + " bytes, " + std::to_string(options_.memory_bytes) +
                   " are allowed"};
    }
  }
  return {};
}

void Compressor::BeginCall(Phase phase, int64_t n_call) {
  phase_ = phase;
  n_rows_ = n_call;
  n_seen_ += n_call;
}

kernels::TapSpec Compressor::Taps() const {
  if (!active()) return {};
  const compression::Needs needs = options_.method->needs();
  return phase_ == Phase::kPrefill ? needs.prefill : needs.decode;
}

void Compressor::AfterLayer(cache::Cache& cache, int layer, const kernels::Taps& taps) {
  if (!active()) return;
  const compression::Method& method = *options_.method;
  // Before the first eviction: from then on positions mean something else than places in the text.
  if (cache.config().positions != cache::PositionMode::kOriginal && cache.keys_rotated(layer) &&
      LongestHead(cache, layer) > budget_) {
    cache.Unrotate(layer, rope_);
  }
  for (int pass = 0; pass == 0 || plans_.again; ++pass) {
    plans_.Clear();
    method.Decide({.backend = backend_,
                   .cache = cache,
                   .scratch = scratch_,
                   .taps = taps,
                   .phase = phase_,
                   .pass = pass,
                   .layer = layer,
                   .n_layers = cache.config().shape.n_layers,
                   .n_q_heads = n_q_heads_,
                   .n_new = n_rows_,
                   .n_seen = n_seen_,
                   .budget = budget_},
                  plans_);
    for (const cache::Plan& plan : plans_.plans()) {
      if (options_.on_plan) {
        options_.on_plan(plan, {.cache = cache, .phase = phase_, .n_seen = n_seen_});
      }
      cache.Apply(plan);
    }
  }
  if (!plans_.kept_rows.empty()) n_rows_ = static_cast<int64_t>(plans_.kept_rows.size());
}

std::span<const int32_t> Compressor::RowsKept() const { return plans_.kept_rows; }

void Compressor::Reset() {
  n_seen_ = 0;
  budget_ = 0;
}

void Compressor::Follow(const Compressor& other) {
  n_seen_ = other.n_seen_;
  budget_ = other.budget_;
}

int64_t Compressor::Room(const cache::Cache& cache) const {
  if (options_.memory_bytes == 0 || Holds(cache)) {
    return std::numeric_limits<int64_t>::max();
  }
  const int n_layers = cache.config().shape.n_layers;
  return std::max<int64_t>(0, options_.memory_bytes - cache.live_bytes()) /
         Bytes(cache, n_layers, n_layers);
}

}  // namespace winnow::runtime

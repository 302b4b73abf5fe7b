#include "runtime/budget/compression_options.h"

#include <cmath>
#include <limits>
#include <vector>

#include "compression/parameters.h"

namespace winnow::runtime {
namespace {

CompressionProblem OutOfRange(std::string_view field, const std::string& found,
                              const std::string& expected) {
  return {field, "found " + found + ", expected " + expected};
}

// "A, B and C", with `word` before the last item; empty items are left out.
std::string Listed(std::vector<std::string_view> items, std::string_view word) {
  std::erase(items, std::string_view());
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 < items.size() ? ", " : " " + std::string(word) + " ";
    text += items[i];
  }
  return text;
}

}  // namespace

Result<void> CompressionOptions::Check() const {
  if (const auto problem = FindProblem(*this)) return ErrorFrom(*problem);
  return {};
}

std::optional<CompressionProblem> FindProblem(const CompressionOptions& options,
                                              const CompressionFieldNames& words) {
  const bool has_slots = options.size != 0 || options.ratio != 0;
  const int n_budgets = (options.size != 0 ? 1 : 0) + (options.ratio != 0 ? 1 : 0) +
                        (options.memory_bytes != 0 ? 1 : 0) + (options.quality != 0 ? 1 : 0);
  if (n_budgets > 1) {
    return CompressionProblem{
        .text = "give only one of " +
                Listed({words.size, words.ratio, words.memory, words.quality}, "and")};
  }
  // Budgets are limited to the range of positions, because methods multiply them.
  constexpr int64_t kMax = std::numeric_limits<cache::Position>::max();
  if (options.size < 0 || options.size > kMax) {
    return OutOfRange(words.size, std::to_string(options.size), "1 to " + std::to_string(kMax));
  }
  if (!(options.ratio >= 0 && options.ratio <= 1)) {
    return OutOfRange(words.ratio, compression::ShortestText(options.ratio),
                      "more than 0 and at most 1");
  }
  if (options.memory_bytes < 0) {
    return OutOfRange(words.memory, std::to_string(options.memory_bytes), "1 or more bytes");
  }
  if (!(options.quality >= 0 && std::isfinite(options.quality))) {
    return OutOfRange(words.quality, compression::ShortestText(options.quality),
                      "more than 0 nats");
  }
  if (options.prefill_chunk < 0) {
    return OutOfRange(words.prefill_chunk, std::to_string(options.prefill_chunk),
                      "1 or more tokens");
  }
  if (!options.method) {
    if (!has_slots && options.quality == 0) return std::nullopt;
    return CompressionProblem{.text = "the full cache has no size to choose: name a method with " +
                                      std::string(words.method)};
  }
  const std::string& spec = options.method->traits().spec;
  const compression::BudgetPolicy& policy = options.method->traits().budget;
  if (policy.needed && n_budgets == 0) {
    const std::string size = std::string(words.size) + " (entries per KV head, " +
                             std::to_string(policy.min) + " or more)";
    const std::string ratio = std::string(words.ratio) + " (share of the prompt)";
    const std::string memory = std::string(words.memory) + " (bytes)";
    const std::string quality =
        words.quality.empty() ? "" : std::string(words.quality) + " (KL divergence)";
    return CompressionProblem{
        .text = spec + " needs a budget: " + Listed({size, ratio, memory, quality}, "or")};
  }
  if (options.size != 0 && options.size < policy.min) {
    return CompressionProblem{words.size, "found " + std::to_string(options.size) + ", " + spec +
                                              " needs " + std::to_string(policy.min) + " or more"};
  }
  // If a method chooses its own size and a budget is only a bound, a search for a quality makes no
  // sense.
  if ((!policy.HasEffect() && has_slots) || (!policy.needed && options.quality != 0)) {
    return CompressionProblem{options.size != 0    ? words.size
                              : options.ratio != 0 ? words.ratio
                                                   : words.quality,
                              spec + " chooses its own size; remove this option"};
  }
  return std::nullopt;
}

Error ErrorFrom(const CompressionProblem& problem) {
  const std::string field = problem.field.empty() ? "" : std::string(problem.field) + ": ";
  return {.message = field + problem.text, .code = ErrorCode::kInvalid};
}

}  // namespace winnow::runtime

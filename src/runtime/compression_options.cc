#include "runtime/compression_options.h"

#include <array>
#include <cmath>
#include <limits>

#include "compression/parameters.h"

namespace winnow::runtime {
namespace {

CompressionProblem OutOfRange(std::string_view field, const std::string& found,
                              const std::string& expected) {
  return {field, "found " + found + ", expected " + expected};
}

}  // namespace

Result<void> CompressionOptions::Check() const {
  if (const auto problem = FindProblem(*this)) return ErrorFrom(*problem);
  return {};
}

std::optional<CompressionProblem> FindProblem(const CompressionOptions& options,
                                              const CompressionWords& words) {
  const std::string size(words.size), ratio(words.ratio), memory(words.memory),
      quality(words.quality);
  const bool has_slots = options.size != 0 || options.ratio != 0;
  const int n_budgets = (options.size != 0 ? 1 : 0) + (options.ratio != 0 ? 1 : 0) +
                        (options.memory_bytes != 0 ? 1 : 0) + (options.quality != 0 ? 1 : 0);
  // "A, B and C", or with another word than "and", of what a budget can be.
  const auto list = [&](const char* word, const std::array<const char*, 4>& after) {
    const std::string last = word + (quality.empty() ? memory : quality);
    return size + after[0] + ", " + ratio + after[1] +
           (quality.empty() ? last + after[2] : ", " + memory + after[2] + last + after[3]);
  };
  if (n_budgets > 1) {
    return CompressionProblem{.text = "give only one of " + list(" and ", {"", "", "", ""})};
  }
  // As far as positions reach: methods multiply what they are given.
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
    const std::string entries =
        " (entries per KV head, " + std::to_string(policy.min) + " or more)";
    return CompressionProblem{.text = spec + " needs a budget: " +
                                      list(" or ", {entries.c_str(), " (share of the prompt)",
                                                    " (bytes)", " (KL divergence)"})};
  }
  if (options.size != 0 && options.size < policy.min) {
    return CompressionProblem{words.size, "found " + std::to_string(options.size) + ", " + spec +
                                              " needs " + std::to_string(policy.min) + " or more"};
  }
  if (!policy.Heeded() && (has_slots || options.quality != 0)) {
    return CompressionProblem{options.size != 0    ? words.size
                              : options.ratio != 0 ? words.ratio
                                                   : words.quality,
                              spec + " finds its own size and has no budget of slots; drop it"};
  }
  return std::nullopt;
}

Error ErrorFrom(const CompressionProblem& problem) {
  const std::string field = problem.field.empty() ? "" : std::string(problem.field) + ": ";
  return {.message = field + problem.text, .code = ErrorCode::kInvalid};
}

}  // namespace winnow::runtime

#include "gguf/split.h"

#include <cstdio>

namespace winnow::gguf {
namespace {

constexpr int64_t kMaxParts = 99999;  // five digits in the file name

std::string Suffix(int64_t number, int64_t count) {
  char text[32];
  std::snprintf(text, sizeof(text), "-%05d-of-%05d.gguf", static_cast<int>(number),
                static_cast<int>(count));
  return text;
}

std::optional<uint64_t> UintOf(const Container& part, std::string_view wanted) {
  for (const auto& [key, value] : part.metadata) {
    if (key != wanted) continue;
    if (const auto* number = std::get_if<uint64_t>(&value.data)) return *number;
    if (const auto* number = std::get_if<int64_t>(&value.data))
      return static_cast<uint64_t>(*number);
  }
  return std::nullopt;
}

std::string Shown(std::optional<uint64_t> number) {
  return number ? std::to_string(*number) : "missing";
}

}  // namespace

Result<SplitPlan> PlanSplits(const File& first, const std::string& path) {
  SplitPlan plan;
  WINNOW_ASSIGN(const auto count, first.Uint("split.count"));
  if (!count || *count <= 1) return plan;
  if (*count > kMaxParts)
    return Error{"split.count is " + std::to_string(*count) + ", at most 99999 are possible"};
  plan.count = static_cast<int64_t>(*count);
  WINNOW_ASSIGN(const auto number, first.Uint("split.no"));
  if (!number || *number >= *count) {
    return Error{"split.no is " + Shown(number) + ", expected 0 to " +
                 std::to_string(plan.count - 1)};
  }
  const std::string suffix = Suffix(static_cast<int64_t>(*number) + 1, plan.count);
  if (!path.ends_with(suffix)) {
    return Error{"part " + std::to_string(*number + 1) + " of a split model must be named NAME" +
                 suffix};
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  if (*number != 0) {
    return Error{"this is part " + std::to_string(*number + 1) +
                 " of a split model; give the first, " + stem + Suffix(1, plan.count)};
  }
  for (int64_t part = 2; part <= plan.count; ++part)
    plan.paths.push_back(stem + Suffix(part, plan.count));
  WINNOW_ASSIGN(plan.n_tensors, first.Uint("split.tensors.count"));
  return plan;
}

Result<void> CheckSplit(const Container& part, int64_t index, int64_t count,
                        const std::string& path) {
  const auto number = UintOf(part, "split.no");
  const auto parts = UintOf(part, "split.count");
  if (number != static_cast<uint64_t>(index) || parts != static_cast<uint64_t>(count)) {
    return Error{path + ": gguf: says split.no " + Shown(number) + " of " + Shown(parts) +
                 ", expected " + std::to_string(index) + " of " + std::to_string(count)};
  }
  return {};
}

}  // namespace winnow::gguf

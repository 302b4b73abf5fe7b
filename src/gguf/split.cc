#include "gguf/split.h"

#include <algorithm>
#include <string_view>

namespace winnow::gguf {
namespace {

constexpr size_t kDigits = 5;

std::string FiveDigits(int number) {
  std::string digits = std::to_string(number);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

// Takes `suffix` off the end of `text`; false if the end is different.
bool TakeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

std::optional<int> TakeNumber(std::string_view& text) {
  if (text.size() < kDigits) return std::nullopt;
  const std::string_view digits = text.substr(text.size() - kDigits);
  const bool all_digits =
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!all_digits) return std::nullopt;
  text.remove_suffix(kDigits);
  return std::stoi(std::string(digits));
}

}  // namespace

std::string SplitName::ShardPath(int other) const {
  return stem + "-" + FiveDigits(other) + "-of-" + FiveDigits(count) + ".gguf";
}

std::optional<SplitName> ParseSplitName(const std::string& path) {
  std::string_view rest = path;
  if (!TakeSuffix(rest, ".gguf")) return std::nullopt;
  const std::optional<int> count = TakeNumber(rest);
  if (!count || !TakeSuffix(rest, "-of-")) return std::nullopt;
  const std::optional<int> number = TakeNumber(rest);
  if (!number || !TakeSuffix(rest, "-")) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return SplitName{.stem = std::string(rest), .number = *number, .count = *count};
}

}  // namespace winnow::gguf

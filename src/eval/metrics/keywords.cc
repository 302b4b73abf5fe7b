#include "eval/metrics/keywords.h"

#include <algorithm>
#include <set>
#include <vector>

#include "eval/metrics/normalise.h"

namespace winnow::eval {
namespace {

constexpr std::string_view kCommonWords[] = {
    "and", "are", "as", "at",   "be",   "by",    "for", "from", "has",  "in",   "is",  "it",
    "its", "of",  "on", "that", "this", "thing", "to",  "was",  "were", "will", "with"};

std::set<std::string> KeyWords(std::string_view text) {
  std::set<std::string> words;
  for (std::string& word : Words(NormalizeAnswer(text))) {
    if (std::find(std::begin(kCommonWords), std::end(kCommonWords), word) ==
        std::end(kCommonWords)) {
      words.insert(std::move(word));
    }
  }
  return words;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWord(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0;
}

// Whether the character next to an end of the text, with the one after it, continues the word or
// number there; '\0': no such character.
bool ContinuesWord(char end, char next, char after) {
  if (IsWord(end) && IsWord(next)) return true;
  return IsDigit(end) && (next == '.' || next == ',') && IsDigit(after);
}

}  // namespace

bool HasWhole(std::string_view answer, std::string_view text) {
  const std::string lower = Lowercase(answer);
  const std::string wanted = Lowercase(text);
  if (wanted.empty()) return false;
  const auto at = [&](size_t place) { return place < lower.size() ? lower[place] : '\0'; };
  for (size_t begin = lower.find(wanted); begin != std::string::npos;
       begin = lower.find(wanted, begin + 1)) {
    const size_t end = begin + wanted.size();
    // Indices below 0 wrap around to beyond the end, where at() gives '\0'.
    if (!ContinuesWord(wanted.front(), at(begin - 1), at(begin - 2)) &&
        !ContinuesWord(wanted.back(), at(end), at(end + 1))) {
      return true;
    }
  }
  return false;
}

double FoundFraction(std::string_view answer, std::span<const std::string> texts) {
  if (texts.empty()) return 0;
  const std::string lower = Lowercase(answer);
  const auto n = std::count_if(texts.begin(), texts.end(), [&](const std::string& text) {
    return lower.find(Lowercase(text)) != std::string::npos;
  });
  return static_cast<double>(n) / static_cast<double>(texts.size());
}

double KeyWordShare(std::string_view answer, std::string_view needle, std::string_view question) {
  std::set<std::string> wanted = KeyWords(needle);
  for (const std::string& word : KeyWords(question)) wanted.erase(word);
  if (wanted.empty()) return 0;
  const std::set<std::string> found = KeyWords(answer);
  const auto n = std::count_if(wanted.begin(), wanted.end(),
                               [&](const std::string& word) { return found.contains(word); });
  return static_cast<double>(n) / static_cast<double>(wanted.size());
}

}  // namespace winnow::eval

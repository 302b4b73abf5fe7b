#include "eval/metrics/option_letter.h"

#include <algorithm>

#include "eval/metrics/pattern.h"

namespace winnow::eval {
namespace {

// The option letters in a text, sorted, each once: "C and A" gives AC.
std::string FindLetters(std::string_view text, char last) {
  std::string letters;
  for (const char c : text) {
    if (c >= 'A' && c <= last && letters.find(c) == std::string::npos) letters += c;
  }
  std::sort(letters.begin(), letters.end());
  return letters;
}

}  // namespace

std::string OptionLetters(std::string_view answer, char last) {
  // One or several letters that belong together, not followed by a word character or an apostrophe.
  static const std::string kLetters =
      "(\\(?[A-J]\\)?(?:(?:, ?| and | ?& ?|, and )?\\(?[A-J]\\)?)*)(?![\\w'])";
  static const Pattern kSaid("(?:[Aa]nswers?(?: is| are|:)|[Oo]ptions?)[: ]*" + kLetters);
  static const Pattern kFirst("^\\s*" + kLetters);
  static const Pattern kAlone("(?:\\(([A-J])\\)|\\b([A-J])[.)](?!\\w))");
  std::string found;
  if (kSaid.Find(answer, &found, 1) || kFirst.Find(answer, &found, 1)) {
    const std::string letters = FindLetters(found, last);
    if (!letters.empty()) return letters;
  }
  return kAlone.Find(answer, &found) ? FindLetters(found, last) : "";
}

}  // namespace winnow::eval

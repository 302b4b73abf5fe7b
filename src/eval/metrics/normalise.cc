#include "eval/metrics/normalise.h"

#include "eval/metrics/pattern.h"

namespace winnow::eval {

std::vector<std::string> Words(std::string_view text) {
  // \s lacks the separators U+001C to U+001F, which Python splits at.
  static const Pattern kWord("[^\\s\\x{1C}-\\x{1F}]+");
  return kWord.FindAll(text);
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  for (;;) {
    const size_t at = text.find(separator);
    pieces.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string Join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (&word != &words.front()) text += separator;
    text += word;
  }
  return text;
}

std::string Trimmed(std::string_view text) {
  static const Pattern kEnds("^[\\s\\x{1C}-\\x{1F}]+|[\\s\\x{1C}-\\x{1F}]+\\z");
  return kEnds.Replace(text, "");
}

std::string Lowercase(std::string_view text) {
  static const Pattern kAll("(?s).+");
  return kAll.Replace(text, "\\L$0");
}

std::string NormalizeAnswer(std::string_view answer) {
  static const Pattern kPunctuation("[!-/:-@\\[-`{-~]");
  static const Pattern kArticle("\\b(a|an|the)\\b");
  return Join(Words(kArticle.Replace(kPunctuation.Replace(Lowercase(answer), ""), " ")), " ");
}

}  // namespace winnow::eval

#include "eval/metrics/math_answer.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "eval/metrics/normalise.h"
#include "eval/metrics/pattern.h"

namespace winnow::eval {
namespace {

constexpr double kTolerance = 0.04;  // [TheoremQA's scorer]

std::string Plain(std::string_view number) {
  static const Pattern kIgnored("[$,]|\\.\\z");
  return kIgnored.Replace(number, "");
}

// All numbers of a text; "3/4" is one.
std::vector<double> Numbers(std::string_view text) {
  static const Pattern kThousands("(?<=\\d),(?=\\d{3}\\b)");
  static const Pattern kNumber("-?\\d*\\.?\\d+(?:[eE][-+]?\\d+)?(?:\\s*/\\s*\\d+(?:\\.\\d+)?)?");
  std::vector<double> numbers;
  for (const std::string& found : kNumber.FindAll(kThousands.Replace(text, ""))) {
    double value = std::strtod(found.c_str(), nullptr);
    const size_t slash = found.find('/');
    if (slash != std::string::npos) value /= std::strtod(found.c_str() + slash + 1, nullptr);
    numbers.push_back(value);
  }
  return numbers;
}

bool Near(double value, double wanted) {
  return std::abs(value - wanted) <= kTolerance * std::abs(wanted);
}

bool IsTrue(std::string_view text) {
  static const Pattern kYesOrNo("\\b(true|yes|false|no)\\b");
  std::string word;
  kYesOrNo.Find(Lowercase(text), &word);
  return word == "true" || word == "yes";
}

bool HasYesOrNo(std::string_view text) {
  static const Pattern kYesOrNo("\\b(true|yes|false|no)\\b");
  return !kYesOrNo.FindAll(Lowercase(text)).empty();
}

std::string FindOption(std::string_view text) {
  static const Pattern kOption("\\(?\\b([a-dA-D])\\b\\)?");
  std::string letter;
  kOption.Find(text, &letter, 1);
  return Lowercase(letter);
}

}  // namespace

std::string NumberAfterHashes(std::string_view text) {
  static const Pattern kStrict("#### (-?[0-9.,]+)");
  std::string number;
  kStrict.Find(text, &number, 1);
  return Plain(number);
}

std::string LastNumber(std::string_view text) {
  static const Pattern kNumber("-?\\$?\\d[\\d,]*(?:\\.\\d+)?|-?\\.\\d+");
  const std::vector<std::string> all = kNumber.FindAll(text);
  return all.empty() ? "" : Plain(all.back());
}

std::string FinalAnswer(std::string_view text) {
  static const Pattern kLastMark("(?is).*answer(?: is|:)[ :]*([^\\n]*)");
  std::string marked;
  if (kLastMark.Find(text, &marked, 1)) return Trimmed(marked);
  const std::string all = Trimmed(text);
  const size_t line = all.rfind('\n');
  return line == std::string::npos ? all : all.substr(line + 1);
}

bool SameMathAnswer(std::string_view answer, std::string_view reference, std::string_view type) {
  if (type == "bool") return HasYesOrNo(answer) && IsTrue(answer) == IsTrue(reference);
  if (type == "option")
    return !FindOption(answer).empty() && FindOption(answer) == FindOption(reference);
  const std::vector<double> found = Numbers(answer);
  const std::vector<double> wanted = Numbers(reference);
  if (wanted.empty() || found.size() < wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool same = type == "integer" ? found[i] == wanted[i] : Near(found[i], wanted[i]);
    if (!same) return false;
  }
  return true;
}

}  // namespace winnow::eval

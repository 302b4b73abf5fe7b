#include "eval/metrics/edit_similarity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "eval/metrics/normalise.h"
#include "eval/metrics/pattern.h"

namespace winnow::eval {

double EditSimilarity(std::string_view a, std::string_view b) {
  if (a == b) return 1;
  static const Pattern kCharacter("(?s).");
  const std::vector<std::string> left = kCharacter.FindAll(a);
  const std::vector<std::string> right = kCharacter.FindAll(b);
  if (left.empty() || right.empty()) return 0;
  std::vector<int> above(right.size() + 1, 0);
  std::vector<int> lengths(right.size() + 1, 0);
  for (const std::string& character : left) {
    for (size_t j = 1; j <= right.size(); ++j) {
      lengths[j] =
          character == right[j - 1] ? above[j - 1] + 1 : std::max(above[j], lengths[j - 1]);
    }
    std::swap(above, lengths);
  }
  const double ratio = 2.0 * above.back() / static_cast<double>(left.size() + right.size());
  return std::nearbyint(100 * ratio) / 100;  // rounds half to even, as Python does
}

std::string FirstCodeLine(std::string_view completion) {
  completion.remove_prefix(std::min(completion.find_first_not_of('\n'), completion.size()));
  for (std::string& line : Split(completion, '\n')) {
    if (line.find('`') == std::string::npos && line.find('#') == std::string::npos &&
        line.find("//") == std::string::npos) {
      return std::move(line);
    }
  }
  return "";
}

}  // namespace winnow::eval

#include "eval/metrics/rouge.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "eval/metrics/normalise.h"
#include "eval/metrics/pattern.h"

namespace winnow::eval {
namespace {

using Sentence = std::vector<int>;  // word numbers

// Gives each distinct word a number.
class Numbering {
 public:
  int Number(const std::string& word) {
    return numbers_.try_emplace(word, static_cast<int>(numbers_.size())).first->second;
  }

 private:
  std::map<std::string, int> numbers_;
};

std::vector<Sentence> Sentences(std::string_view text, Numbering& numbering) {
  std::vector<Sentence> sentences;
  for (const std::string& piece : Split(text, '.')) {
    if (piece.empty()) continue;
    Sentence& sentence = sentences.emplace_back();
    for (const std::string& word : Words(piece)) sentence.push_back(numbering.Number(word));
    // White space alone counts as a sentence of one empty word.
    if (sentence.empty()) sentence.push_back(numbering.Number(""));
  }
  return sentences;
}

std::set<int> DistinctWords(const std::vector<Sentence>& sentences) {
  std::set<int> words;
  for (const Sentence& sentence : sentences) words.insert(sentence.begin(), sentence.end());
  return words;
}

// Adds the words of a longest common subsequence. Of several, it is the one found from the end that
// skips a word of the answer on a tie.
void AddCommonWords(const Sentence& reference, const Sentence& answer, std::set<int>& words) {
  const size_t width = answer.size() + 1;
  std::vector<int> lengths((reference.size() + 1) * width, 0);
  for (size_t i = 1; i <= reference.size(); ++i) {
    for (size_t j = 1; j < width; ++j) {
      const size_t at = i * width + j;
      lengths[at] = reference[i - 1] == answer[j - 1]
                        ? lengths[at - width - 1] + 1
                        : std::max(lengths[at - width], lengths[at - 1]);
    }
  }
  size_t i = reference.size();
  size_t j = answer.size();
  while (i > 0 && j > 0) {
    if (reference[i - 1] == answer[j - 1]) {
      words.insert(reference[i - 1]);
      --i;
      --j;
    } else if (lengths[(i - 1) * width + j] > lengths[i * width + j - 1]) {
      --i;
    } else {
      --j;
    }
  }
}

double FMeasure(double shared, double n_answer, double n_reference) {
  if (shared == 0) return 0;
  const double precision = shared / n_answer;
  const double recall = shared / n_reference;
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

double RougeL(std::string_view answer, std::string_view reference) {
  Numbering numbering;
  const std::vector<Sentence> found = Sentences(answer, numbering);
  const std::vector<Sentence> wanted = Sentences(reference, numbering);
  if (found.empty() || wanted.empty()) return 0;
  std::set<int> shared;
  for (const Sentence& sentence : wanted) {
    for (const Sentence& candidate : found) AddCommonWords(sentence, candidate, shared);
  }
  return FMeasure(static_cast<double>(shared.size()),
                  static_cast<double>(DistinctWords(found).size()),
                  static_cast<double>(DistinctWords(wanted).size()));
}

double Rouge1(std::string_view answer, std::string_view reference) {
  static const Pattern kWord("[a-z0-9]+");
  const std::vector<std::string> found = kWord.FindAll(Lowercase(answer));
  const std::vector<std::string> wanted = kWord.FindAll(Lowercase(reference));
  std::map<std::string, int> left;
  for (const std::string& word : wanted) ++left[word];
  double shared = 0;
  for (const std::string& word : found) {
    if (left[word]-- > 0) ++shared;
  }
  return FMeasure(shared, static_cast<double>(found.size()), static_cast<double>(wanted.size()));
}

}  // namespace winnow::eval

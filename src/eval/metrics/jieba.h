#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace winnow::eval {

// How to install the package. Its dependencies are not needed, as only its tables are read.
inline constexpr const char* kInstallJieba = "pip install --no-deps --target DIR jieba";

// Cuts Chinese text into words as the Python package jieba 0.42.1 does by default: the most likely
// path through a dictionary, and a hidden Markov model for runs of single characters that form no
// word of it. The tables are read from the installed package; winnow contains none of them.
class Jieba {
 public:
  // `folder`: the package (dict.txt and finalseg/prob_start.py, prob_trans.py, prob_emit.py), or
  // the folder that holds it as "jieba". Errors: a file is missing or not as expected (names it and
  // the line or entry).
  static Result<Jieba> Open(const std::string& folder);

  // The words in order; concatenated, they are the text. Spaces and signs are words of one
  // character.
  // Cost: linear in the text for words of bounded length.
  std::vector<std::string> Cut(std::string_view text) const;

 private:
  // B, E, M, S: begin, end, middle of a word, single; in alphabetical order.
  static constexpr int kStates = 4;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  // A character of the text: its bytes and its code point.
  struct Character {
    std::string_view bytes;
    char32_t number;
  };
  using Characters = std::vector<Character>;

  static Characters SplitCharacters(std::string_view text);
  static bool IsHan(char32_t number);
  static bool IsInBlock(char32_t number);
  static std::string_view Text(const Characters& characters, size_t begin, size_t end);

  Result<void> ReadDictionary(const std::string& path);
  Result<void> ReadModel(const std::string& folder);
  int64_t Frequency(std::string_view word) const;  // 0: not a word
  // The end of the word that starts at each character, on the most likely path.
  std::vector<size_t> Route(const Characters& block) const;
  void CutBlock(const Characters& block, std::vector<std::string>& words) const;
  void CutUnknown(const Characters& run, std::vector<std::string>& words) const;
  void CutByModel(const Characters& run, std::vector<std::string>& words) const;

  // All words and their prefixes; a prefix that is not a word has frequency 0.
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> frequencies_;
  double log_total_ = 0;
  std::array<double, kStates> start_ = {};
  std::array<std::array<double, kStates>, kStates> transition_ = {};  // [from][to]
  std::array<std::unordered_map<char32_t, double>, kStates> emission_;
};

}  // namespace winnow::eval

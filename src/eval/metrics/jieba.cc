#include "eval/metrics/jieba.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "eval/tasks/data.h"
#include "tokenizer/utf8.h"

namespace winnow::eval {
namespace {

constexpr double kNever = -3.14e100;  // the package's substitute for log(0)
constexpr std::string_view kStateNames = "BEMS";

// Reads the numbers of a Python literal of nested dictionaries,
// `P={'B': {'\u4e00': -3.65, ...}, ...}`.
class PythonTable {
 public:
  using Take = std::function<bool(const std::vector<std::string>& keys, double value)>;

  PythonTable(std::string_view text, Take take) : rest_(text), take_(std::move(take)) {}

  // False: not such a literal, or `take` refused a number.
  bool Read() {
    const size_t at = rest_.find("P=");
    if (at == std::string_view::npos) return false;
    rest_.remove_prefix(at + 2);
    return Dictionary();
  }

 private:
  bool Skip(char wanted) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool Dictionary() {
    if (!Skip('{')) return false;
    while (!Skip('}')) {
      keys_.emplace_back();
      if (!Key(keys_.back()) || !Skip(':')) return false;
      rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
      if (rest_.empty() || !(rest_.front() == '{' ? Dictionary() : Number())) return false;
      keys_.pop_back();
      Skip(',');
    }
    return true;
  }

  bool Key(std::string& key) {
    Skip('u');
    if (!Skip('\'')) return false;
    const size_t end = rest_.find('\'');
    if (end == std::string_view::npos) return false;
    key = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }

  bool Number() {
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return take_(keys_, value);
  }

  std::string_view rest_;
  Take take_;
  std::vector<std::string> keys_;
};

// The index of a state's name; -1 if there is none.
int ParseState(const std::string& name) {
  return name.size() == 1 ? static_cast<int>(kStateNames.find(name)) : -1;
}

char32_t CodePoint(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() == 1) return first;
  char32_t number = first & (0x7Fu >> bytes.size());
  for (const char byte : bytes.substr(1)) {
    number = number << 6 | (static_cast<unsigned char>(byte) & 0x3F);
  }
  return number;
}

// The character of a key: '\u4e00' as the file writes it, or the character itself; 0 if it is
// neither.
char32_t KeyCharacter(const std::string& key) {
  if (key.starts_with("\\u")) {
    uint32_t number = 0;
    const auto parsed = std::from_chars(key.data() + 2, key.data() + key.size(), number, 16);
    return parsed.ptr == key.data() + key.size() ? number : 0;
  }
  return !key.empty() && tokenizer::CharacterLength(key) == key.size() ? CodePoint(key) : 0;
}

bool IsAsciiWord(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsDigit(char32_t c) { return c >= '0' && c <= '9'; }

}  // namespace

Jieba::Characters Jieba::SplitCharacters(std::string_view text) {
  Characters characters;
  while (!text.empty()) {
    // Invalid UTF-8 is split byte by byte.
    const size_t length = std::max<size_t>(1, tokenizer::CharacterLength(text));
    characters.push_back({text.substr(0, length), CodePoint(text.substr(0, length))});
    text.remove_prefix(length);
  }
  return characters;
}

bool Jieba::IsHan(char32_t number) { return number >= 0x4E00 && number <= 0x9FD5; }

bool Jieba::IsInBlock(char32_t number) {
  constexpr std::string_view kSigns = "+#&._%-";
  return IsHan(number) || IsAsciiWord(number) ||
         (number < 0x80 && kSigns.find(static_cast<char>(number)) != std::string_view::npos);
}

std::string_view Jieba::Text(const Characters& characters, size_t begin, size_t end) {
  const char* first = characters[begin].bytes.data();
  const std::string_view last = characters[end - 1].bytes;
  return {first, static_cast<size_t>(last.data() + last.size() - first)};
}

Result<Jieba> Jieba::Open(const std::string& folder) {
  const auto dictionary = FindIn(folder, {"dict.txt", "jieba/dict.txt"});
  if (!dictionary || std::filesystem::is_regular_file(folder)) {
    return Error{folder + ": no dict.txt in it; expected the folder of PyPI's package jieba ('" +
                 kInstallJieba + "' makes it: DIR/jieba)"};
  }
  Jieba jieba;
  WINNOW_TRY(jieba.ReadDictionary(*dictionary));
  WINNOW_TRY(jieba.ReadModel(std::filesystem::path(*dictionary).parent_path() / "finalseg"));
  return jieba;
}

Result<void> Jieba::ReadDictionary(const std::string& path) {
  WINNOW_ASSIGN(const std::string text, ReadWhole(path));
  int64_t total = 0;
  std::string_view rest = text;
  for (int64_t line_number = 1; !rest.empty(); ++line_number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t space = line.find(' ');
    const std::string_view word = line.substr(0, space);
    int64_t frequency = 0;
    const char* number = line.data() + std::min(word.size() + 1, line.size());
    const auto parsed = std::from_chars(number, line.data() + line.size(), frequency);
    if (word.empty() || space == std::string_view::npos || parsed.ec != std::errc()) {
      return Error{path + ":" + std::to_string(line_number) + ": found '" + std::string(line) +
                   "', expected a word and its frequency"};
    }
    frequencies_[std::string(word)] = frequency;
    total += frequency;
    for (size_t end = 0; end < word.size();) {
      end += std::max<size_t>(1, tokenizer::CharacterLength(word.substr(end)));
      frequencies_.try_emplace(std::string(word.substr(0, end)), 0);
    }
  }
  if (total <= 0) return Error{path + ": no word with a frequency"};
  log_total_ = std::log(static_cast<double>(total));
  return {};
}

Result<void> Jieba::ReadModel(const std::string& folder) {
  start_.fill(kNever);
  for (auto& row : transition_) row.fill(kNever);
  const auto read = [&](const char* name, const PythonTable::Take& take) -> Result<void> {
    const std::string path = folder + "/" + name;
    WINNOW_ASSIGN(const std::string text, ReadWhole(path));
    if (PythonTable(text, take).Read()) return {};
    return Error{path + ": expected the table P of jieba 0.42 (states B, E, M, S)"};
  };
  WINNOW_TRY(read("prob_start.py", [&](const std::vector<std::string>& keys, double value) {
    const int state = keys.size() == 1 ? ParseState(keys[0]) : -1;
    if (state >= 0) start_[static_cast<size_t>(state)] = value;
    return state >= 0;
  }));
  WINNOW_TRY(read("prob_trans.py", [&](const std::vector<std::string>& keys, double value) {
    const int from = keys.size() == 2 ? ParseState(keys[0]) : -1;
    const int to = keys.size() == 2 ? ParseState(keys[1]) : -1;
    if (from < 0 || to < 0) return false;
    transition_[static_cast<size_t>(from)][static_cast<size_t>(to)] = value;
    return true;
  }));
  return read("prob_emit.py", [&](const std::vector<std::string>& keys, double value) {
    const int state = keys.size() == 2 ? ParseState(keys[0]) : -1;
    const char32_t character = keys.size() == 2 ? KeyCharacter(keys[1]) : 0;
    if (state < 0 || character == 0) return false;
    emission_[static_cast<size_t>(state)][character] = value;
    return true;
  });
}

int64_t Jieba::Frequency(std::string_view word) const {
  const auto found = frequencies_.find(word);
  return found == frequencies_.end() ? 0 : found->second;
}

std::vector<size_t> Jieba::Route(const Characters& block) const {
  std::vector<size_t> ends(block.size());
  std::vector<double> best(block.size() + 1,
                           0);  // log-probability of the best path from this character on
  for (size_t begin = block.size(); begin-- > 0;) {
    bool any = false;
    const auto offer = [&](size_t end, int64_t frequency) {
      const double value =
          std::log(static_cast<double>(std::max<int64_t>(1, frequency))) - log_total_ + best[end];
      if (any && value < best[begin]) return;  // of equal paths, the longer word
      any = true;
      best[begin] = value;
      ends[begin] = end;
    };
    for (size_t end = begin + 1; end <= block.size(); ++end) {
      const auto found = frequencies_.find(Text(block, begin, end));
      if (found == frequencies_.end()) break;  // no word begins like this
      if (found->second != 0) offer(end, found->second);
    }
    if (!any) offer(begin + 1, Frequency(block[begin].bytes));
  }
  return ends;
}

void Jieba::CutByModel(const Characters& run, std::vector<std::string>& words) const {
  constexpr size_t kB = 0, kE = 1, kM = 2, kS = 3;
  // The states that can precede each state; on a tie the second one wins.
  constexpr size_t kBefore[kStates][2] = {{kE, kS}, {kB, kM}, {kB, kM}, {kE, kS}};
  std::vector<std::array<size_t, kStates>> from(run.size());
  std::array<double, kStates> value;
  const auto emission = [&](size_t state, char32_t character) {
    const auto found = emission_[state].find(character);
    return found == emission_[state].end() ? kNever : found->second;
  };
  for (size_t state = 0; state < kStates; ++state) {
    value[state] = start_[state] + emission(state, run[0].number);
  }
  for (size_t i = 1; i < run.size(); ++i) {
    std::array<double, kStates> next;
    for (size_t state = 0; state < kStates; ++state) {
      const double emitted = emission(state, run[i].number);
      const auto by = [&](size_t before) {
        return value[before] + transition_[before][state] + emitted;
      };
      const auto [first, second] = kBefore[state];
      from[i][state] = by(second) >= by(first) ? second : first;
      next[state] = by(from[i][state]);
    }
    value = next;
  }
  std::vector<size_t> states(run.size());
  states.back() = value[kS] >= value[kE] ? kS : kE;
  for (size_t i = run.size(); i-- > 1;) states[i - 1] = from[i][states[i]];
  size_t begin = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    if (states[i] == kB) begin = i;
    if (states[i] == kS) begin = i;
    if (states[i] == kS || states[i] == kE) words.emplace_back(Text(run, begin, i + 1));
  }
}

void Jieba::CutUnknown(const Characters& run, std::vector<std::string>& words) const {
  const auto number_end = [&](size_t at) {  // of [a-zA-Z0-9]+(\.\d+)?%? from a letter or digit on
    while (at < run.size() && IsAsciiWord(run[at].number)) ++at;
    if (at + 1 < run.size() && run[at].number == '.' && IsDigit(run[at + 1].number)) {
      for (++at; at < run.size() && IsDigit(run[at].number);) ++at;
    }
    return at < run.size() && run[at].number == '%' ? at + 1 : at;
  };
  for (size_t at = 0; at < run.size();) {
    const char32_t c = run[at].number;
    size_t end = at;
    if (IsHan(c)) {
      while (end < run.size() && IsHan(run[end].number)) ++end;
      CutByModel(Characters(run.begin() + static_cast<int64_t>(at),
                            run.begin() + static_cast<int64_t>(end)),
                 words);
    } else {
      if (IsAsciiWord(c)) {
        end = number_end(at);
      } else {
        while (end < run.size() && !IsHan(run[end].number) && !IsAsciiWord(run[end].number)) ++end;
      }
      words.emplace_back(Text(run, at, end));
    }
    at = end;
  }
}

void Jieba::CutBlock(const Characters& block, std::vector<std::string>& words) const {
  const std::vector<size_t> ends = Route(block);
  Characters singles;  // a run of single-character words
  const auto flush = [&] {
    if (singles.empty()) return;
    if (singles.size() > 1 && Frequency(Text(singles, 0, singles.size())) == 0) {
      CutUnknown(singles, words);
    } else {
      for (const Character& single : singles) words.emplace_back(single.bytes);
    }
    singles.clear();
  };
  for (size_t at = 0; at < block.size(); at = ends[at]) {
    if (ends[at] == at + 1) {
      singles.push_back(block[at]);
      continue;
    }
    flush();
    words.emplace_back(Text(block, at, ends[at]));
  }
  flush();
}

std::vector<std::string> Jieba::Cut(std::string_view text) const {
  const Characters all = SplitCharacters(text);
  std::vector<std::string> words;
  for (size_t at = 0; at < all.size();) {
    size_t end = at;
    while (end < all.size() && IsInBlock(all[end].number)) ++end;
    if (end > at) {
      CutBlock(Characters(all.begin() + static_cast<int64_t>(at),
                          all.begin() + static_cast<int64_t>(end)),
               words);
      at = end;
      continue;
    }
    const bool line_end =
        all[at].number == '\r' && at + 1 < all.size() && all[at + 1].number == '\n';
    end = at + (line_end ? 2 : 1);
    words.emplace_back(Text(all, at, end));
    at = end;
  }
  return words;
}

}  // namespace winnow::eval

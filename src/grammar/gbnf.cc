#include "grammar/gbnf.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <vector>

namespace winnow::grammar {
namespace {

constexpr size_t kMaxBytes = size_t{32} << 10;
constexpr size_t kMaxDepth = 64;
constexpr int64_t kMaxElements = 2000;  // with repetitions expanded
constexpr int64_t kMaxWritten = 500;    // before expansion: compiling time is quadratic in it

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

bool IsHexDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// The text up to the first byte that is not printable ASCII.
std::string Printable(const std::string& text) {
  const auto end = std::ranges::find_if(text, [](char c) { return c < ' ' || c > '~'; });
  return {text.begin(), end};
}

// Translates in one pass from left to right.
class Translator {
 public:
  explicit Translator(const std::string& text) : text_(text) {}

  Result<std::string> Run() {
    if (text_.size() > kMaxBytes) {
      return Error{"the grammar has " + std::to_string(text_.size()) + " bytes, expected at most " +
                   std::to_string(kMaxBytes)};
    }
    if (text_.find('\0') != std::string::npos) return Error{"the grammar contains a zero byte"};
    SkipSpace();
    while (at_ < text_.size()) WINNOW_TRY(Rule());
    if (!defined_.contains("root")) return Error{"the grammar has no rule 'root' to begin with"};
    for (const auto& [name, line] : used_) {
      if (!defined_.contains(name)) return At(line, "rule '" + name + "' is not defined");
    }
    return std::move(out_);
  }

 private:
  static Error At(int line, const std::string& what) {
    return Error{"the grammar, line " + std::to_string(line) + ": " + what};
  }
  Error Unexpected(const std::string& expected) const {
    std::string found = "the end";
    if (at_ < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      found = byte >= 0x20 && byte < 0x7F ? "'" + std::string(1, text_[at_]) + "'"
                                          : "byte " + std::to_string(byte);
    }
    return At(line_, "found " + found + ", expected " + expected);
  }

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void Take() {
    if (text_[at_++] == '\n') ++line_;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') Take();
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        Take();
      } else {
        return;
      }
    }
  }
  std::string Name() {
    const size_t begin = at_;
    while (IsNameCharacter(Peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // Whether a name and "::=" follow, which begin the next rule.
  bool RuleFollows() {
    const size_t at = at_;
    const int line = line_;
    const bool is_name = !Name().empty();
    SkipSpace();
    const bool follows = is_name && text_.compare(at_, 3, "::=") == 0;
    at_ = at;
    line_ = line;
    return follows;
  }

  Result<void> Rule() {
    const int line = line_;
    const std::string name = Name();
    if (name.empty()) return Unexpected("the name of a rule");
    SkipSpace();
    if (text_.compare(at_, 3, "::=") != 0) return Unexpected("'::=' after '" + name + "'");
    at_ += 3;
    SkipSpace();
    if (!defined_.insert(name).second) return At(line, "rule '" + name + "' is defined twice");
    out_ += "r-" + name + " ::=";
    int64_t n_elements = 0;
    WINNOW_TRY(Alternatives(0, n_elements));
    n_elements_ += n_elements;
    if (n_elements_ > kMaxElements) {
      return At(line, "found " + std::to_string(n_elements_) +
                          " elements once repetitions are written out, expected at most " +
                          std::to_string(kMaxElements));
    }
    if (at_ < text_.size() && !RuleFollows()) return Unexpected("an element or the next rule");
    out_ += '\n';
    return {};
  }

  // a b | c | : the last alternative is empty.
  Result<void> Alternatives(size_t depth, int64_t& n_elements) {
    for (;;) {
      WINNOW_TRY(Sequence(depth, n_elements));
      if (Peek() != '|') return {};
      Take();
      out_ += " |";
      SkipSpace();
    }
  }

  Result<void> Sequence(size_t depth, int64_t& n_elements) {
    bool is_empty = true;
    for (;; is_empty = false) {
      const char c = Peek();
      if (c == '\0' || c == '|' || c == ')' || RuleFollows()) break;
      if (++n_written_ > kMaxWritten) {
        return At(line_, "more than " + std::to_string(kMaxWritten) + " elements");
      }
      int64_t n = 1;
      WINNOW_TRY(Element(depth, n));
      SkipSpace();
      WINNOW_TRY(Repetition(n));
      n_elements += n;
    }
    if (is_empty) out_ += " \"\"";
    return {};
  }

  Result<void> Element(size_t depth, int64_t& n_elements) {
    const char c = Peek();
    if (c == '"') return Quoted('"');
    if (c == '[') return Quoted(']');
    if (c == '.') {
      Take();
      out_ += " [\\u0000-\\U0010ffff]";
      return {};
    }
    if (c == '<' || c == '!') {
      return At(line_, "tokens (<...>) are not supported, write their text");
    }
    if (c == '(') {
      if (depth == kMaxDepth) {
        return At(line_, "more than " + std::to_string(kMaxDepth) + " levels of brackets");
      }
      Take();
      SkipSpace();
      out_ += " (";
      n_elements = 0;
      WINNOW_TRY(Alternatives(depth + 1, n_elements));
      if (Peek() != ')') return Unexpected("')'");
      Take();
      out_ += " )";
      return {};
    }
    const int line = line_;
    const std::string name = Name();
    if (name.empty()) return Unexpected("a text, a class of characters, a rule or a bracket");
    used_.emplace(name, line);
    out_ += " r-" + name;
    return {};
  }

  // "text" or [class], with escapes that xgrammar reads as llama.cpp does.
  Result<void> Quoted(char end) {
    const int line = line_;
    Take();
    out_ += end == '"' ? " \"" : " [";
    while (at_ < text_.size() && text_[at_] != end && text_[at_] != '\n') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') {
        WINNOW_TRY(Escape(end));
      } else {
        out_ += text_[at_];
        Take();
      }
    }
    if (Peek() != end) return At(line, std::string("expected '") + end + "' on the same line");
    Take();
    out_ += end;
    return {};
  }

  // A backslash and the character after it.
  Result<void> Escape(char end) {
    const char c = text_[at_ + 1];
    at_ += 2;
    if (c == 'x') {
      // Exactly two digits; xgrammar would take all that follow.
      const std::string digits = text_.substr(at_, 2);
      if (digits.size() < 2 || !std::ranges::all_of(digits, IsHexDigit)) {
        return At(line_, "found '\\x" + Printable(digits) + "', expected two hex digits after \\x");
      }
      at_ += 2;
      out_ += "\\u00" + digits;
    } else if (end == '"' && (c == '[' || c == ']')) {
      out_ += c;  // xgrammar knows these escapes only in classes
    } else {
      out_ += {'\\', c};
    }
    return {};
  }

  // * + ? {m} {m,} {m,n} after an element that counts as `n` elements.
  Result<void> Repetition(int64_t& n) {
    const char c = Peek();
    if (c == '*' || c == '+' || c == '?') {
      Take();
      out_ += c;
    } else if (c == '{') {
      Take();
      int64_t low = 0, high = 0;
      WINNOW_TRY(Count(low));
      high = low;
      out_ += "{" + std::to_string(low);
      if (Peek() == ',') {
        Take();
        SkipSpace();
        out_ += ',';
        if (Peek() != '}') {
          WINNOW_TRY(Count(high));
          if (high < low) return At(line_, "a repetition ends below its beginning");
          out_ += std::to_string(high);
        }
      }
      if (Peek() != '}') return Unexpected("'}'");
      Take();
      out_ += '}';
      n = std::min(n * std::max<int64_t>(high, 1), kMaxElements + 1);  // cannot overflow
    } else {
      return {};
    }
    SkipSpace();
    if (std::string_view("*+?{").find(Peek()) != std::string_view::npos && Peek() != '\0') {
      return Unexpected("an element: a repetition is repeated only within brackets");
    }
    return {};
  }

  Result<void> Count(int64_t& count) {
    SkipSpace();
    const char* const end = text_.data() + text_.size();
    const auto [stop, problem] = std::from_chars(text_.data() + at_, end, count);
    if (problem != std::errc() || count < 0) return Unexpected("a whole number of repetitions");
    if (count > kMaxElements) {
      return At(line_, "found " + std::to_string(count) + " repetitions, expected at most " +
                           std::to_string(kMaxElements));
    }
    at_ = static_cast<size_t>(stop - text_.data());
    SkipSpace();
    return {};
  }

  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;
  std::string out_;
  int64_t n_elements_ = 0, n_written_ = 0;
  std::set<std::string> defined_;
  std::map<std::string, int> used_;  // line of the first use
};

}  // namespace

Result<std::string> EbnfFromGbnf(const std::string& text) { return Translator(text).Run(); }

}  // namespace winnow::grammar

#include "jinja/lexer.h"

#include <array>
#include <charconv>
#include <optional>

#include "gguf/printable.h"
#include "jinja/string_escapes.h"
#include "jinja/unicode.h"

namespace winnow::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsNumeral(char c) { return c >= '0' && c <= '9'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsNumeral(c); }

// Converts line ends to \n and drops one at the end of the template.
std::string Normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

size_t SkipSpaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character c = CharacterAt(text, at);
    if (!IsSpace(c.code)) break;
    at += c.bytes;
  }
  return at;
}

std::string_view WithoutSpacesBehind(std::string_view text) {
  while (!text.empty()) {
    const Character c = CharacterBefore(text, text.size());
    if (!IsSpace(c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalized(source)), text_(source_) {}

  Result<std::vector<Token>> Run() {
    while (at_ < text_.size() && !error_) Root();
    if (error_) return Error{*error_};
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Fail(const std::string& what) {
    if (!error_) error_ = "line " + std::to_string(line_) + ": " + what;
  }

  void Add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  // Moves to `end`, counting lines.
  void MoveTo(size_t end) {
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }

  // The first tag at or after at_.
  size_t FindTag() const {
    for (size_t at = text_.find('{', at_); at != kNowhere; at = text_.find('{', at + 1)) {
      const char next = at + 1 < text_.size() ? text_[at + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return kNowhere;
  }

  char SignAt(size_t at) const {
    const char c = at < text_.size() ? text_[at] : ' ';
    return c == '-' || c == '+' ? c : ' ';
  }

  // Adds the text before a tag, stripped as the tag's sign says.
  void AddData(std::string_view data, char sign, bool is_variable) {
    if (sign == '-') {
      data = WithoutSpacesBehind(data);
    } else if (sign != '+' && !is_variable) {
      const size_t line_start = data.rfind('\n') + 1;  // npos + 1 == 0
      if (line_start > 0 || line_starting_) {
        if (SkipSpaces(data, line_start) == data.size()) data = data.substr(0, line_start);
      }
    }
    if (!data.empty()) Add(TokenKind::kData, std::string(data));
  }

  void Root() {
    const size_t tag = FindTag();
    if (tag == kNowhere) {
      Add(TokenKind::kData, std::string(text_.substr(at_)));
      MoveTo(text_.size());
      return;
    }
    const std::string_view data = text_.substr(at_, tag - at_);
    const char kind = text_[tag + 1];
    const char sign = SignAt(tag + 2);
    AddData(data, sign, kind == '{');
    MoveTo(tag);
    const size_t inside = tag + 2 + (sign == ' ' ? 0 : 1);
    line_starting_ = false;
    if (kind == '#') {
      MoveTo(inside);
      Comment();
    } else if (const size_t raw = kind == '%' ? AfterRawTag(inside) : 0; raw != 0) {
      MoveTo(raw);
      Raw();
    } else {
      Add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
      MoveTo(inside);
      Tag(kind == '{');
    }
  }

  // The position after a closing "%}" or "#}" at `at` with its sign, and after white space that it
  // removes. 0: no closing here.
  size_t AfterEnd(size_t at, std::string_view end, bool trims_newline) const {
    const char sign = SignAt(at);
    const size_t begin = at + (sign == ' ' ? 0 : 1);
    if (text_.substr(begin, 2) != end) return 0;
    const size_t after = begin + 2;
    if (sign == '-') return SkipSpaces(text_, after);
    const bool newline = sign == ' ' && trims_newline && text_.substr(after, 1) == "\n";
    return after + (newline ? 1 : 0);
  }

  void Leave(size_t after) {
    line_starting_ = text_[after - 1] == '\n';
    MoveTo(after);
  }

  void Comment() {
    const size_t close = text_.find("#}", at_);
    if (close == kNowhere) return Fail("a comment {# without its end #}");
    const char sign = close > at_ ? SignAt(close - 1) : ' ';
    Leave(AfterEnd(sign == ' ' ? close : close - 1, "#}", true));
  }

  // Where the text of {% raw %} begins, if `inside` is within that tag; otherwise 0.
  size_t AfterRawTag(size_t inside) const {
    size_t at = SkipSpaces(text_, inside);
    if (text_.substr(at, 3) != "raw") return 0;
    at = SkipSpaces(text_, at + 3);
    if (text_.substr(at, 2) == "%}") return at + 2;
    return text_.substr(at, 3) == "-%}" ? SkipSpaces(text_, at + 3) : 0;
  }

  void Raw() {
    line_starting_ = text_[at_ - 1] == '\n';
    for (size_t tag = text_.find("{%", at_); tag != kNowhere; tag = text_.find("{%", tag + 1)) {
      const char sign = SignAt(tag + 2);
      size_t at = SkipSpaces(text_, tag + 2 + (sign == ' ' ? 0 : 1));
      if (text_.substr(at, 6) != "endraw") continue;
      at = SkipSpaces(text_, at + 6);
      const size_t after = AfterEnd(at, "%}", true);
      if (after == 0) continue;
      AddData(text_.substr(at_, tag - at_), sign, false);
      Leave(after);
      return;
    }
    Fail("{% raw %} without its end {% endraw %}");
  }

  // Reads the inside of {{ }} or {% %}.
  void Tag(bool is_variable) {
    std::string open;  // brackets not closed yet
    for (;;) {
      MoveTo(SkipSpaces(text_, at_));
      if (error_ || at_ >= text_.size()) return;  // the parser reports what is missing
      if (open.empty()) {
        const bool plus = is_variable && text_[at_] == '+';
        const size_t after = plus ? 0 : AfterEnd(at_, is_variable ? "}}" : "%}", !is_variable);
        if (after != 0) {
          Add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          return Leave(after);
        }
      }
      const char c = text_[at_];
      if (IsNameStart(c)) {
        size_t end = at_;
        while (end < text_.size() && IsNamePart(text_[end])) ++end;
        Add(TokenKind::kName, std::string(text_.substr(at_, end - at_)));
        MoveTo(end);
      } else if (c == '\'' || c == '"') {
        String(c);
      } else if (IsNumeral(c)) {
        Number();
      } else {
        Operator(&open);
      }
    }
  }

  void String(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Fail("a string without its closing quote");
    const auto unescaped = Unescape(text_.substr(at_ + 1, end - at_ - 1));
    if (!unescaped) return Fail(unescaped.error().message);
    Add(TokenKind::kString, *unescaped);
    MoveTo(end + 1);
  }

  size_t Digits(size_t at) const {  // with single underscores between them
    while (at < text_.size() &&
           (IsNumeral(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() &&
                                     IsNumeral(text_[at + 1]) && at > 0 && text_[at - 1] != '_'))) {
      ++at;
    }
    return at;
  }

  void Number() {
    const bool based = text_[at_] == '0' && at_ + 1 < text_.size() &&
                       std::string_view("xXoObB").find(text_[at_ + 1]) != kNowhere;
    size_t end = Digits(at_);
    bool real = false;
    if (based) {
      end = at_ + 2;
      while (end < text_.size() && (IsNamePart(text_[end]))) ++end;
    } else if (at_ == 0 || text_[at_ - 1] != '.') {
      if (end + 1 < text_.size() && text_[end] == '.' && IsNumeral(text_[end + 1])) {
        end = Digits(end + 1);
        real = true;
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        const size_t sign =
            end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
        if (end + 1 + sign < text_.size() && IsNumeral(text_[end + 1 + sign])) {
          end = Digits(end + 1 + sign);
          real = true;
        }
      }
    }
    std::string digits;
    for (const char c : text_.substr(at_, end - at_)) {
      if (c != '_') digits += c;
    }
    Add(real ? TokenKind::kFloat : TokenKind::kInteger, digits);
    Token& token = tokens_.back();
    const char* first = digits.data();
    const char* last = first + digits.size();
    if (real) {
      // Out of range gives 0 or infinity, as in Python.
      token.real = std::strtod(first, nullptr);
    } else {
      const char kind = based ? static_cast<char>(digits[1] | 0x20) : 'd';
      const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      const auto parsed = std::from_chars(first + (based ? 2 : 0), last, token.integer, base);
      if (parsed.ec != std::errc() || parsed.ptr != last) {
        return Fail("the number " + digits + ": expected digits and at most 9223372036854775807");
      }
    }
    MoveTo(end);
  }

  void Operator(std::string* open) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (text_.substr(at_, op.size()) != op) continue;
      if (op == "(" || op == "[" || op == "{") {
        open->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open->empty()) return Fail("'" + std::string(op) + "' closes nothing");
        if (open->back() != op[0]) {
          return Fail("'" + std::string(op) + "' found, expected '" + open->back() + "'");
        }
        open->pop_back();
      }
      Add(TokenKind::kOperator, std::string(op));
      return MoveTo(at_ + op.size());
    }
    Fail("unexpected '" + gguf::Printable(text_.substr(at_, CharacterAt(text_, at_).bytes)) + "'");
  }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  std::optional<std::string> error_;
};

}  // namespace

std::string Token::Described() const {
  switch (kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kData:
      return "text";
    default:
      return "'" + gguf::Printable(text.substr(0, 60)) + "'";
  }
}

Result<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace winnow::jinja

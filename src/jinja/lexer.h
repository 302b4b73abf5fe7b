#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace winnow::jinja {

enum class TokenKind {
  kData,           // text between tags, after white space control
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // without quotes and escapes
  kInteger,
  kFloat,
  kOperator,  // its characters
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 0;
  int64_t integer = 0;
  double real = 0;

  bool Is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool IsName(std::string_view name) const { return Is(TokenKind::kName, name); }
  bool IsOperator(std::string_view op) const { return Is(TokenKind::kOperator, op); }
  // For error messages: 'endif', the end of the template.
  std::string Described() const;
};

// Splits a template into tokens, with trim_blocks and lstrip_blocks, which chat templates expect.
// The last token is kEnd. Errors: "line 3: ...".
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace winnow::jinja

#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace winnow::jinja {

// Maximum nesting of brackets, prefix operators and blocks.
inline constexpr int kMaxNesting = 150;

Result<Ast> Parse(std::string_view source);

// Parses tokens into a tree: statements in parser.cc, expressions in parse_expression.cc. After an
// error nothing more is read, and every function returns a harmless value.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<Ast> Run();

 private:
  using Statements = std::vector<const Statement*>;

  // Statements.
  Statements ParseUntil(const std::vector<std::string_view>& ends);
  Statements ParseBody(const std::vector<std::string_view>& ends);  // after a tag's last word
  const Statement* ParseStatement();
  const Statement* ParseIf();
  const Statement* ParseFor();
  const Statement* ParseSet();
  const Statement* ParseMacro();
  const Statement* ParseCallBlock();
  const Statement* ParseFilterBlock();
  const Statement* ParseWith();
  const Statement* ParseScope(std::string_view end);
  void ParseSignature(Statement* out);
  void ParseMacroBody(std::string_view end, Statement* out);
  const Expression* ParseTarget(std::string_view end, bool may_be_attribute);

  // Expressions, from the lowest precedence to the highest.
  const Expression* ParseTuple(bool with_condition, bool in_parentheses, std::string_view end = {});
  const Expression* ParseExpression() { return ParseCondition(); }
  const Expression* ParseCondition();
  const Expression* ParseOr();
  const Expression* ParseAnd();
  const Expression* ParseNot();
  const Expression* ParseCompare();
  const Expression* ParseSum();
  const Expression* ParseConcatenation();
  const Expression* ParseProduct();
  const Expression* ParsePower();
  const Expression* ParseUnary(bool with_filters);
  const Expression* ParsePrimary();
  const Expression* ParsePostfix(const Expression* value);
  const Expression* ParseFiltersAndTests(const Expression* value);
  const Expression* ParseFilter(const Expression* value);  // after the |
  const Expression* ParseTest(const Expression* value);    // after `is`
  const Expression* ParseSubscript(const Expression* value);
  const Expression* ParseIndex();
  const Expression* ParseList();
  const Expression* ParseDict();
  void ParseArguments(Expression* out);
  bool AtTupleEnd(std::string_view end) const;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Skip() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool SkipIfName(std::string_view name);
  bool SkipIfOperator(std::string_view op);
  void ExpectName(std::string_view name);
  void ExpectOperator(std::string_view op);
  void ExpectBlockEnd();
  std::string ExpectAnyName(const char* what);

  bool failed() const { return error_.has_value(); }
  void Fail(int line, const std::string& what);
  void FailHere(const std::string& expected);
  bool Enter();  // one level deeper; false: too deep
  void LeaveLevel() { --level_; }

  Expression* NewExpression(ExpressionKind kind, int line);
  Statement* NewStatement(StatementKind kind, int line);
  // operand (operator operand)*, left-associative; kBinary nodes keep the operator in `text`.
  template <class Operand, class IsOperator>
  const Expression* FromTheLeft(ExpressionKind kind, const Operand& operand,
                                const IsOperator& is_operator);
  const Expression* Binary(ExpressionKind kind, int line, std::string op, const Expression* left,
                           const Expression* right);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;  // open ones: `break` is allowed within
  Ast ast_;
  std::optional<std::string> error_;
  // Names read since the macro's body began.
  bool reads_varargs_ = false;
  bool reads_kwargs_ = false;
  bool reads_caller_ = false;
};

}  // namespace winnow::jinja

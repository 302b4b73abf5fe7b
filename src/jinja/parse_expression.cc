#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "jinja/parser.h"

namespace winnow::jinja {
namespace {

using Kind = ExpressionKind;

bool IsAnyOperator(const Token& token, std::initializer_list<std::string_view> operators) {
  return std::any_of(operators.begin(), operators.end(),
                     [&](std::string_view op) { return token.IsOperator(op); });
}

}  // namespace

const Expression* Parser::Binary(Kind kind, int line, std::string op, const Expression* left,
                                 const Expression* right) {
  Expression* node = NewExpression(kind, line);
  node->text = std::move(op);
  node->items = {left, right};
  return node;
}

bool Parser::AtTupleEnd(std::string_view end) const {
  const TokenKind kind = current().kind;
  return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd ||
         kind == TokenKind::kEnd || current().IsOperator(")") ||
         (!end.empty() && current().IsName(end));
}

const Expression* Parser::ParseTuple(bool with_condition, bool in_parentheses,
                                     std::string_view end) {
  const int line = current().line;
  Expression* tuple = nullptr;
  const Expression* only = nullptr;
  while (!AtTupleEnd(end)) {
    const Expression* item = with_condition ? ParseExpression() : ParseOr();
    if (tuple != nullptr) {
      tuple->items.push_back(item);
    } else if (current().IsOperator(",")) {
      tuple = NewExpression(Kind::kTuple, line);
      tuple->items.push_back(item);
    } else {
      only = item;
    }
    if (!SkipIfOperator(",")) break;
  }
  if (tuple != nullptr) return tuple;
  if (only != nullptr) return only;
  if (!in_parentheses) FailHere("an expression");
  return NewExpression(Kind::kTuple, line);
}

const Expression* Parser::ParseCondition() {
  const int line = current().line;
  if (!Enter()) return NewExpression(Kind::kNone, line);
  const Expression* value = ParseOr();
  while (SkipIfName("if")) {
    Expression* node = NewExpression(Kind::kCondition, line);
    const Expression* condition = ParseOr();
    const Expression* other = SkipIfName("else") ? ParseCondition() : nullptr;
    node->items = {value, condition, other};
    value = node;
  }
  LeaveLevel();
  return value;
}

template <class Operand, class IsOperator>
const Expression* Parser::FromTheLeft(Kind kind, const Operand& operand,
                                      const IsOperator& is_operator) {
  const Expression* left = operand();
  while (is_operator(current())) {
    const Token op = current();
    Skip();
    left = Binary(kind, op.line, kind == Kind::kBinary ? op.text : "", left, operand());
  }
  return left;
}

const Expression* Parser::ParseOr() {
  return FromTheLeft(
      Kind::kOr, [this] { return ParseAnd(); }, [](const Token& t) { return t.IsName("or"); });
}

const Expression* Parser::ParseAnd() {
  return FromTheLeft(
      Kind::kAnd, [this] { return ParseNot(); }, [](const Token& t) { return t.IsName("and"); });
}

const Expression* Parser::ParseNot() {
  const int line = current().line;
  if (!SkipIfName("not")) return ParseCompare();
  Expression* node = NewExpression(Kind::kNot, line);
  node->items = {Enter() ? ParseNot() : nullptr};
  LeaveLevel();
  return node;
}

const Expression* Parser::ParseCompare() {
  const int line = current().line;
  const Expression* first = ParseSum();
  Expression* node = nullptr;
  for (;;) {
    std::string op;
    if (IsAnyOperator(current(), {"==", "!=", "<", "<=", ">", ">="})) {
      op = current().text;
      Skip();
    } else if (SkipIfName("in")) {
      op = "in";
    } else if (current().IsName("not") && next().IsName("in")) {
      Skip();
      Skip();
      op = "not in";
    } else {
      return node == nullptr ? first : node;
    }
    if (node == nullptr) {
      node = NewExpression(Kind::kCompare, line);
      node->items.push_back(first);
    }
    node->operators.push_back(std::move(op));
    node->items.push_back(ParseSum());
  }
}

const Expression* Parser::ParseSum() {
  return FromTheLeft(
      Kind::kBinary, [this] { return ParseConcatenation(); },
      [](const Token& t) {
        return IsAnyOperator(t, {"+", "-"});
      });
}

const Expression* Parser::ParseConcatenation() {
  const int line = current().line;
  const Expression* first = ParseProduct();
  if (!current().IsOperator("~")) return first;
  Expression* node = NewExpression(Kind::kConcatenate, line);
  node->items.push_back(first);
  while (SkipIfOperator("~")) node->items.push_back(ParseProduct());
  return node;
}

const Expression* Parser::ParseProduct() {
  return FromTheLeft(
      Kind::kBinary, [this] { return ParsePower(); },
      [](const Token& t) {
        return IsAnyOperator(t, {"*", "/", "//", "%"});
      });
}

const Expression* Parser::ParsePower() {
  return FromTheLeft(
      Kind::kBinary, [this] { return ParseUnary(true); },
      [](const Token& t) { return t.IsOperator("**"); });
}

const Expression* Parser::ParseUnary(bool with_filters) {
  const int line = current().line;
  const Expression* value = nullptr;
  if (IsAnyOperator(current(), {"-", "+"})) {
    Expression* node =
        NewExpression(current().text == "-" ? Kind::kNegative : Kind::kPositive, line);
    Skip();
    node->items = {Enter() ? ParseUnary(false) : nullptr};
    LeaveLevel();
    value = node;
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(value);
  return with_filters ? ParseFiltersAndTests(value) : value;
}

const Expression* Parser::ParsePrimary() {
  const Token token = current();
  switch (token.kind) {
    case TokenKind::kName: {
      Skip();
      Expression* node = NewExpression(Kind::kName, token.line);
      if (token.text == "true" || token.text == "True" || token.text == "false" ||
          token.text == "False") {
        node->kind = Kind::kBoolean;
        node->integer = token.text == "true" || token.text == "True" ? 1 : 0;
      } else if (token.text == "none" || token.text == "None") {
        node->kind = Kind::kNone;
      } else {
        node->text = token.text;
        reads_varargs_ = reads_varargs_ || token.text == "varargs";
        reads_kwargs_ = reads_kwargs_ || token.text == "kwargs";
        reads_caller_ = reads_caller_ || token.text == "caller";
      }
      return node;
    }
    case TokenKind::kString: {
      Expression* node = NewExpression(Kind::kString, token.line);
      for (; current().kind == TokenKind::kString; Skip()) node->text += current().text;
      return node;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      Skip();
      Expression* node = NewExpression(
          token.kind == TokenKind::kInteger ? Kind::kInteger : Kind::kFloat, token.line);
      node->integer = token.integer;
      node->real = token.real;
      return node;
    }
    default:
      break;
  }
  if (SkipIfOperator("(")) {
    const Expression* inner = ParseTuple(true, true);
    ExpectOperator(")");
    return inner;
  }
  if (SkipIfOperator("[")) return ParseList();
  if (SkipIfOperator("{")) return ParseDict();
  FailHere("an expression");
  return NewExpression(Kind::kNone, token.line);
}

const Expression* Parser::ParseList() {
  Expression* node = NewExpression(Kind::kList, current().line);
  while (!failed() && !current().IsOperator("]")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (current().IsOperator("]")) break;
    node->items.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return node;
}

const Expression* Parser::ParseDict() {
  Expression* node = NewExpression(Kind::kDict, current().line);
  while (!failed() && !current().IsOperator("}")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (current().IsOperator("}")) break;
    node->items.push_back(ParseExpression());
    ExpectOperator(":");
    node->items.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return node;
}

const Expression* Parser::ParsePostfix(const Expression* value) {
  for (;;) {
    if (IsAnyOperator(current(), {".", "["})) {
      value = ParseSubscript(value);
    } else if (current().IsOperator("(")) {
      Expression* call = NewExpression(Kind::kCall, current().line);
      call->items.push_back(value);
      ParseArguments(call);
      value = call;
    } else {
      return value;
    }
  }
}

const Expression* Parser::ParseFiltersAndTests(const Expression* value) {
  for (;;) {
    if (SkipIfOperator("|")) {
      value = ParseFilter(value);
    } else if (SkipIfName("is")) {
      value = ParseTest(value);
    } else if (current().IsOperator("(")) {
      Expression* call = NewExpression(Kind::kCall, current().line);
      call->items.push_back(value);
      ParseArguments(call);
      value = call;
    } else {
      return value;
    }
  }
}

const Expression* Parser::ParseFilter(const Expression* value) {
  Expression* node = NewExpression(Kind::kFilter, current().line);
  node->text = ExpectAnyName("the name of a filter");
  while (SkipIfOperator(".")) node->text += "." + ExpectAnyName("the name of a filter");
  node->items.push_back(value);
  if (current().IsOperator("(")) ParseArguments(node);
  return node;
}

const Expression* Parser::ParseTest(const Expression* value) {
  const int line = current().line;
  const bool negated = SkipIfName("not");
  Expression* node = NewExpression(Kind::kTest, line);
  node->text = ExpectAnyName("the name of a test");
  while (SkipIfOperator(".")) node->text += "." + ExpectAnyName("the name of a test");
  node->items.push_back(value);
  const Token& token = current();
  if (token.IsOperator("(")) {
    ParseArguments(node);
  } else if (token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
             token.kind == TokenKind::kFloat || IsAnyOperator(token, {"[", "{"}) ||
             (token.kind == TokenKind::kName && token.text != "else" && token.text != "or" &&
              token.text != "and")) {
    if (token.text == "is" && token.kind == TokenKind::kName) {
      FailHere("no second 'is' in a row");
    }
    node->items.push_back(ParsePostfix(ParsePrimary()));
  }
  if (!negated) return node;
  Expression* negation = NewExpression(Kind::kNot, line);
  negation->items = {node};
  return negation;
}

const Expression* Parser::ParseSubscript(const Expression* value) {
  const int line = current().line;
  if (SkipIfOperator(".")) {
    if (current().kind == TokenKind::kInteger) {
      Expression* index = NewExpression(Kind::kInteger, line);
      index->integer = current().integer;
      Skip();
      return Binary(Kind::kItem, line, "", value, index);
    }
    Expression* node = NewExpression(Kind::kAttribute, line);
    node->text = ExpectAnyName("the name of an attribute or a number");
    node->items = {value};
    return node;
  }
  ExpectOperator("[");
  if (current().IsOperator("]")) FailHere("an index");
  const Expression* index = ParseIndex();
  if (current().IsOperator(",")) {
    Expression* tuple = NewExpression(Kind::kTuple, line);
    tuple->items.push_back(index);
    while (!failed() && SkipIfOperator(",")) tuple->items.push_back(ParseIndex());
    index = tuple;
  }
  ExpectOperator("]");
  return Binary(Kind::kItem, line, "", value, index);
}

// An expression, or begin:end:step with any of them omitted.
const Expression* Parser::ParseIndex() {
  const int line = current().line;
  const Expression* begin = current().IsOperator(":") ? nullptr : ParseExpression();
  if (!current().IsOperator(":")) return begin;
  Skip();
  Expression* slice = NewExpression(Kind::kSlice, line);
  const auto part = [&]() -> const Expression* {
    return IsAnyOperator(current(), {":", "]", ","}) ? nullptr : ParseExpression();
  };
  const Expression* end = part();
  const Expression* step = SkipIfOperator(":") ? part() : nullptr;
  slice->items = {begin, end, step};
  return slice;
}

void Parser::ParseArguments(Expression* out) {
  const int line = current().line;
  ExpectOperator("(");
  bool first = true;
  while (!failed() && !current().IsOperator(")")) {
    if (!first) ExpectOperator(",");
    if (current().IsOperator(")")) break;
    first = false;
    if (SkipIfOperator("*")) {
      if (out->list_argument != nullptr || out->map_argument != nullptr) {
        Fail(line, "a call with two lists of arguments, expected one");
      }
      out->list_argument = ParseExpression();
    } else if (SkipIfOperator("**")) {
      if (out->map_argument != nullptr) Fail(line, "a call with ** twice");
      out->map_argument = ParseExpression();
    } else if (current().kind == TokenKind::kName && next().IsOperator("=")) {
      std::string name = current().text;
      Skip();
      Skip();
      out->keywords.emplace_back(std::move(name), ParseExpression());
    } else {
      if (!out->keywords.empty() || out->list_argument != nullptr || out->map_argument != nullptr) {
        Fail(line, "an argument without a name follows one with a name");
      }
      out->items.push_back(ParseExpression());
    }
  }
  ExpectOperator(")");
}

}  // namespace winnow::jinja

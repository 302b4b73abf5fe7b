#include "jinja/parser.h"

#include <algorithm>
#include <utility>

namespace winnow::jinja {

Result<Ast> Parse(std::string_view source) {
  WINNOW_ASSIGN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

Result<Ast> Parser::Run() {
  ast_.body = ParseUntil({});
  if (error_) return Error{*error_};
  return std::move(ast_);
}

void Parser::Fail(int line, const std::string& what) {
  if (!error_) error_ = "line " + std::to_string(line) + ": " + what;
  at_ = tokens_.size() - 1;  // all loops end there
}

void Parser::FailHere(const std::string& expected) {
  Fail(current().line, current().Described() + " found, expected " + expected);
}

bool Parser::Enter() {
  ++level_;
  if (level_ > kMaxNesting) {
    Fail(current().line, "nested deeper than " + std::to_string(kMaxNesting) + " levels");
  }
  return !failed();
}

Expression* Parser::NewExpression(ExpressionKind kind, int line) {
  ast_.expressions.push_back(std::make_unique<Expression>());
  ast_.expressions.back()->kind = kind;
  ast_.expressions.back()->line = line;
  return ast_.expressions.back().get();
}

Statement* Parser::NewStatement(StatementKind kind, int line) {
  ast_.statements.push_back(std::make_unique<Statement>());
  ast_.statements.back()->kind = kind;
  ast_.statements.back()->line = line;
  return ast_.statements.back().get();
}

bool Parser::SkipIfName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Skip();
  return true;
}

bool Parser::SkipIfOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  Skip();
  return true;
}

void Parser::ExpectName(std::string_view name) {
  if (!SkipIfName(name)) FailHere("'" + std::string(name) + "'");
}

void Parser::ExpectOperator(std::string_view op) {
  if (!SkipIfOperator(op)) FailHere("'" + std::string(op) + "'");
}

void Parser::ExpectBlockEnd() {
  if (current().kind == TokenKind::kBlockEnd) return Skip();
  FailHere("'%}'");
}

std::string Parser::ExpectAnyName(const char* what) {
  if (current().kind != TokenKind::kName) {
    FailHere(what);
    return "";
  }
  std::string name = current().text;
  Skip();
  return name;
}

// Parses up to a tag whose first word is one of `ends`, which becomes the current token; without
// `ends`, up to the end of the template.
Parser::Statements Parser::ParseUntil(const std::vector<std::string_view>& ends) {
  Statements out;
  if (!Enter()) return out;
  while (!failed()) {
    const Token& token = current();
    if (token.kind == TokenKind::kEnd) {
      if (!ends.empty()) FailHere("{% " + std::string(ends.back()) + " %}");
      break;
    }
    if (token.kind == TokenKind::kData) {
      Statement* text = NewStatement(StatementKind::kText, token.line);
      text->text = token.text;
      out.push_back(text);
      Skip();
    } else if (token.kind == TokenKind::kVariableBegin) {
      Statement* print = NewStatement(StatementKind::kPrint, token.line);
      Skip();
      print->value = ParseTuple(true, false);
      if (current().kind != TokenKind::kVariableEnd) FailHere("'}}'");
      Skip();
      out.push_back(print);
    } else {
      Skip();
      const auto is_end = [&](std::string_view end) { return current().IsName(end); };
      if (std::any_of(ends.begin(), ends.end(), is_end)) break;
      if (const Statement* statement = ParseStatement()) out.push_back(statement);
      ExpectBlockEnd();
    }
  }
  LeaveLevel();
  return out;
}

Parser::Statements Parser::ParseBody(const std::vector<std::string_view>& ends) {
  SkipIfOperator(":");
  ExpectBlockEnd();
  return ParseUntil(ends);
}

const Statement* Parser::ParseStatement() {
  const Token tag = current();
  if (tag.kind != TokenKind::kName) {
    FailHere("the name of a tag");
    return nullptr;
  }
  if (tag.text == "if") return ParseIf();
  if (tag.text == "for") return ParseFor();
  if (tag.text == "set") return ParseSet();
  if (tag.text == "macro") return ParseMacro();
  if (tag.text == "call") return ParseCallBlock();
  if (tag.text == "filter") return ParseFilterBlock();
  if (tag.text == "with") return ParseWith();
  // Marks text of the assistant for training; it does not change the prompt.
  if (tag.text == "generation") return ParseScope("endgeneration");
  if (tag.text == "break" || tag.text == "continue") {
    Skip();
    if (loops_ == 0) Fail(tag.line, "'" + tag.text + "' outside of a loop");
    return NewStatement(tag.text == "break" ? StatementKind::kBreak : StatementKind::kContinue,
                        tag.line);
  }
  FailHere(
      "if, for, set, macro, call, filter, with, raw, generation, break, continue or the end of one "
      "of them");
  return nullptr;
}

const Statement* Parser::ParseIf() {
  Statement* first = nullptr;
  for (Statement* before = nullptr;;) {
    Statement* branch = NewStatement(StatementKind::kIf, current().line);
    Skip();  // if, elif
    if (first == nullptr) first = branch;
    if (before != nullptr) before->other.push_back(branch);
    before = branch;
    branch->value = ParseTuple(false, false);
    branch->body = ParseBody({"elif", "else", "endif"});
    if (failed() || !current().IsName("elif")) break;
  }
  if (failed()) return first;
  if (!SkipIfName("else")) {
    Skip();  // endif
    return first;
  }
  Statements other = ParseBody({"endif"});
  Skip();
  Statement* last = first;
  // ast_ owns it, so it is not really const.
  while (!last->other.empty()) last = const_cast<Statement*>(last->other[0]);
  last->other = std::move(other);
  return first;
}

const Statement* Parser::ParseFor() {
  Statement* loop = NewStatement(StatementKind::kFor, current().line);
  Skip();
  loop->target = ParseTarget("in", false);
  ExpectName("in");
  loop->value = ParseTuple(false, false, "recursive");
  if (SkipIfName("if")) loop->condition = ParseExpression();
  loop->recursive = SkipIfName("recursive");
  ++loops_;
  loop->body = ParseBody({"else", "endfor"});
  --loops_;
  if (SkipIfName("else")) loop->other = ParseBody({"endfor"});
  Skip();
  return loop;
}

const Statement* Parser::ParseSet() {
  Statement* set = NewStatement(StatementKind::kSet, current().line);
  Skip();
  set->target = ParseTarget("", true);
  if (SkipIfOperator("=")) {
    set->value = ParseTuple(true, false);
    return set;
  }
  set->kind = StatementKind::kSetBlock;
  while (SkipIfOperator("|")) set->value = ParseFilter(set->value);
  set->body = ParseBody({"endset"});
  Skip();
  return set;
}

void Parser::ParseSignature(Statement* out) {
  ExpectOperator("(");
  while (!failed() && !current().IsOperator(")")) {
    if (!out->parameters.empty()) ExpectOperator(",");
    const int line = current().line;
    std::string name = ExpectAnyName("the name of a parameter");
    const Expression* default_value = nullptr;
    if (SkipIfOperator("=")) {
      default_value = ParseExpression();
    } else if (!out->parameters.empty() && out->parameters.back().second != nullptr) {
      Fail(line, "parameter '" + name + "' without a default follows one that has it");
    }
    out->parameters.emplace_back(std::move(name), default_value);
  }
  ExpectOperator(")");
}

void Parser::ParseMacroBody(std::string_view end, Statement* out) {
  const auto before =
      std::array{std::exchange(reads_varargs_, false), std::exchange(reads_kwargs_, false),
                 std::exchange(reads_caller_, false)};
  const int loops = std::exchange(loops_, 0);
  out->body = ParseBody({end});
  Skip();
  loops_ = loops;
  const auto is_parameter = [out](std::string_view name) {
    return std::any_of(out->parameters.begin(), out->parameters.end(),
                       [name](const auto& parameter) { return parameter.first == name; });
  };
  out->takes_more = reads_varargs_ && !is_parameter("varargs");
  out->takes_keywords = reads_kwargs_ && !is_parameter("kwargs");
  out->takes_caller = reads_caller_ && !is_parameter("caller");
  reads_varargs_ = reads_varargs_ || before[0];
  reads_kwargs_ = reads_kwargs_ || before[1];
  reads_caller_ = reads_caller_ || before[2];
}

const Statement* Parser::ParseMacro() {
  Statement* macro = NewStatement(StatementKind::kMacro, current().line);
  Skip();
  macro->text = ExpectAnyName("the macro's name");
  ParseSignature(macro);
  ParseMacroBody("endmacro", macro);
  return macro;
}

const Statement* Parser::ParseCallBlock() {
  Statement* block = NewStatement(StatementKind::kCall, current().line);
  Skip();
  if (current().IsOperator("(")) ParseSignature(block);
  block->value = ParseExpression();
  if (!failed() && block->value->kind != ExpressionKind::kCall) {
    Fail(block->line, "'call' must be followed by a macro call");
  }
  ParseMacroBody("endcall", block);
  return block;
}

const Statement* Parser::ParseFilterBlock() {
  Statement* block = NewStatement(StatementKind::kFilter, current().line);
  Skip();
  block->value = ParseFilter(nullptr);
  while (SkipIfOperator("|")) block->value = ParseFilter(block->value);
  block->body = ParseBody({"endfilter"});
  Skip();
  return block;
}

const Statement* Parser::ParseWith() {
  Statement* scope = NewStatement(StatementKind::kScope, current().line);
  Skip();
  while (!failed() && current().kind != TokenKind::kBlockEnd) {
    if (!scope->with.empty()) ExpectOperator(",");
    const Expression* target = ParseTarget("", false);
    ExpectOperator("=");
    scope->with.emplace_back(target, ParseExpression());
  }
  scope->body = ParseBody({"endwith"});
  Skip();
  return scope;
}

const Statement* Parser::ParseScope(std::string_view end) {
  Statement* scope = NewStatement(StatementKind::kScope, current().line);
  Skip();
  scope->body = ParseBody({end});
  Skip();
  return scope;
}

// A name, several separated by commas (optionally in parentheses), or namespace.attribute.
const Expression* Parser::ParseTarget(std::string_view end, bool may_be_attribute) {
  const int line = current().line;
  const auto one = [&]() -> const Expression* {
    if (current().IsOperator("(")) {
      Skip();
      const Expression* inner = Enter() ? ParseTarget("", false) : nullptr;
      LeaveLevel();
      ExpectOperator(")");
      return inner == nullptr ? NewExpression(ExpressionKind::kNone, line) : inner;
    }
    Expression* name = NewExpression(ExpressionKind::kName, current().line);
    static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                      "False", "none", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), current().text) !=
        std::end(kConstants)) {
      FailHere("the name of a variable");
    }
    name->text = ExpectAnyName("the name of a variable");
    if (may_be_attribute && SkipIfOperator(".")) {
      name->kind = ExpressionKind::kNamespaceAttribute;
      name->operators.push_back(ExpectAnyName("the name of an attribute"));
    }
    return name;
  };
  const Expression* first = one();
  if (!current().IsOperator(",")) return first;
  Expression* tuple = NewExpression(ExpressionKind::kTuple, line);
  tuple->items.push_back(first);
  while (!failed() && SkipIfOperator(",")) {
    if (AtTupleEnd(end) || current().IsOperator("=")) break;
    tuple->items.push_back(one());
  }
  return tuple;
}

}  // namespace winnow::jinja

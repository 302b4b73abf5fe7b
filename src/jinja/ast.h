#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The syntax tree of a template. An Ast owns the nodes, which point to each other.
namespace winnow::jinja {

struct Expression;
struct Statement;

enum class ExpressionKind {
  kString,     // text
  kInteger,    // integer
  kFloat,      // real
  kBoolean,    // integer
  kNone,       //
  kName,       // text
  kList,       // items
  kTuple,      // items
  kDict,       // items: key, value, key, value, ...
  kAttribute,  // items[0].text
  kItem,       // items[0][items[1]]
  kSlice,      // items[0..2], null if omitted; only within kItem
  kCall,       // items[0](items[1..], keywords, list, map)
  kFilter,     // items[0]|text(items[1..], ...); items[0] is null in a filter block
  kTest,       // items[0] is text(items[1..], ...)
  kNot,        // items[0]
  kAnd,
  kOr,
  kNegative,
  kPositive,
  kBinary,              // text: + - * / // % **
  kConcatenate,         // ~ of all items
  kCompare,             // items[0] operators[0] items[1] operators[1] ...
  kCondition,           // items[0] if items[1] else items[2], which may be null
  kNamespaceAttribute,  // text.operators[0], only as the target of a set
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kNone;
  int line = 0;
  std::string text = {};
  int64_t integer = 0;
  double real = 0;
  std::vector<const Expression*> items = {};
  std::vector<std::string> operators = {};
  std::vector<std::pair<std::string, const Expression*>> keywords = {};
  const Expression* list_argument = nullptr;  // *x
  const Expression* map_argument = nullptr;   // **x
};

enum class StatementKind {
  kText,      // text
  kPrint,     // value
  kIf,        // value, body, other
  kFor,       // target in value if condition: body, else: other
  kSet,       // target = value
  kSetBlock,  // target = body through value, a filter; null: none
  kMacro,     // text(parameters): body
  kCall,      // value is the call; parameters and body are the caller
  kFilter,    // body through value
  kScope,     // body in a scope of its own; targets and values of a `with`
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text = {};
  const Expression* target = nullptr;
  const Expression* value = nullptr;
  const Expression* condition = nullptr;
  bool recursive = false;
  std::vector<const Statement*> body = {};
  std::vector<const Statement*> other = {};
  std::vector<std::pair<std::string, const Expression*>> parameters = {};  // null: no default
  std::vector<std::pair<const Expression*, const Expression*>> with = {};
  bool takes_more = false;      // the macro reads `varargs`
  bool takes_keywords = false;  // the macro reads `kwargs`
  bool takes_caller = false;    // the macro reads `caller`
};

struct Ast {
  std::vector<std::unique_ptr<Expression>> expressions = {};
  std::vector<std::unique_ptr<Statement>> statements = {};
  std::vector<const Statement*> body = {};
};

}  // namespace winnow::jinja

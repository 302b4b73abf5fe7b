#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

// Restricts output to JSON of a schema, to a grammar, or to tool calls, by xgrammar. Only in builds
// with WINNOW_GRAMMAR. (docs/decisions/0014-jinja.md)
namespace winnow::grammar {

class GrammarSet;

// Work spent on matching an answer.
struct MatchCost {
  double ms = 0;         // CPU time
  double token_ms = 0;   // the part since the last token began to be accepted
  int64_t n_tokens = 0;  // accepted
};

// The state of one sequence in a grammar.
class Matcher {
 public:
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  // Sets the logits of tokens that cannot come next to -inf; none once finished(). [vocabulary]
  void Mask(std::span<float> logits);
  // Requires: Mask left the token possible. False: it did not, and the state is unchanged; or there
  // is a problem().
  bool Accept(tokenizer::TokenId token);
  // As Accept, for text that is not in tokens of the answer; before the first Accept. Empty: true.
  bool AcceptText(const std::string& text);
  bool finished() const;  // only the end of generation can follow, or there is a problem()
  // Why matching cannot go on: the grammar is too deep, or matching took more CPU time than 100 ms
  // for one token, or 500 ms and 5 ms per token. Work beyond that is stopped. Empty: no problem.
  const std::string& problem() const;
  // The work that counts for this limit. If an answer has several matchers, each continues the
  // count.
  const MatchCost& cost() const;
  void set_cost(const MatchCost& cost);
  Matcher Copy() const;

 private:
  friend class GrammarSet;
  struct Data;
  bool MayBegin();  // whether any token can come first
  explicit Matcher(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

// A tool: its name, and the JSON schema of its arguments.
struct ToolSchema {
  std::string name;
  std::string parameters;
};

// The form of calls: `begin` {"name": ..., ARGUMENTS: {...}} `end`, with `between` between two
// calls. The name comes first, so that it is known even if the call is cut short.
struct CallSyntax {
  std::string begin = {}, end = {}, between = {};
  std::string arguments = "arguments";
  bool several = false;  // false: exactly one call
};

// The rest of a call after its marker, which the model has written: {"name": ..., ARGUMENTS: {...}}
// `end`, with any white space around the object and its members in either order.
struct BegunCallSyntax {
  std::string end = {};
  std::string arguments = "arguments";
  // The object is in a list; or the call is NAME[ARGS]{...}, optionally with [CALL_ID]ID before
  // [ARGS], or NAME{...}.
  bool listed = false;
  bool several = false;  // several objects in the list; false: exactly one
};

// Makes grammars for the vocabulary of one model and caches them. Thread-safe.
//
// All compile in the caller's thread. Further errors: compiling takes more than 1,500 ms of CPU
// time, or 100 us per token of the vocabulary if that is more; the automata have more than
// 2,000,000 states and edges; the first mask takes more than 100 ms; `cancelled`, which is called
// often, returns true.
class GrammarSet {
 public:
  using Cancelled = std::function<bool()>;
  // Control tokens with the texts of `markers` stand for their text; others are never allowed.
  explicit GrammarSet(const tokenizer::Tokenizer& tokenizer,
                      std::span<const std::string_view> markers = {});
  ~GrammarSet();

  // `schema` is JSON text; "{}" means any object. Errors: not a schema, one that cannot be
  // satisfied, or one above 32 KiB, 1,000 values, 64 levels, 256 bytes of patterns, a pattern that
  // repeats a group, or a property count times values above 1,000.
  Result<Matcher> JsonSchema(const std::string& schema, const Cancelled& cancelled = {}) const;
  // A grammar in GBNF, llama.cpp's notation. Errors: those of EbnfFromGbnf (gbnf.h).
  Result<Matcher> Gbnf(const std::string& grammar, const Cancelled& cancelled = {}) const;
  // Tool calls. Errors: no tools, more than 128, a name longer than 256 bytes, schemas that
  // together with the names exceed the limits of one schema.
  Result<Matcher> Calls(const CallSyntax& syntax, std::span<const ToolSchema> tools,
                        const Cancelled& cancelled = {}) const;
  // The rest of a call after its marker. Errors: those of Calls.
  Result<Matcher> CallAfterMarker(const BegunCallSyntax& syntax, std::span<const ToolSchema> tools,
                                  const Cancelled& cancelled = {}) const;

 private:
  template <typename Compile>
  Result<Matcher> Make(const std::string& what, const std::string& text, const Cancelled& cancelled,
                       const Compile& compile) const;
  // `format`: xgrammar's structural tags, JSON.
  Result<Matcher> MakeCall(const std::string& format, const Cancelled& cancelled) const;

  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::grammar

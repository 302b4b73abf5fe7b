#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

// Restricts what a model may write to JSON of a schema, or to calls of tools. Built with
// WINNOW_GRAMMAR only; xgrammar does the work. (docs/decisions/0014-jinja.md)
namespace winnow::grammar {

class GrammarSet;

// What it has taken to read an answer.
struct Reading {
  double ms = 0;         // of computing
  int64_t n_tokens = 0;  // accepted
};

// How far an answer has come in a grammar. State of one sequence.
class Matcher {
 public:
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  // Sets the logits of tokens that must not come next to -inf; of none once finished().
  // [vocabulary]
  void Mask(std::span<float> logits);
  // Requires: Mask left the token possible. False: it did not, and the state is as before; or there
  // is a problem().
  bool Accept(tokenizer::TokenId token);
  // The same of text that stands for no tokens of its own, before the first Accept. Empty: true.
  bool AcceptText(const std::string& text);
  bool finished() const;  // only the end of generation may follow, or there is a problem()
  // Why reading cannot go on: the grammar is too deep, or took more than 500 ms of computing and
  // 5 ms for each token, looked at after each step: one step may take longer. Empty: it can.
  const std::string& problem() const;
  // What counts for that; an answer that has read others before counts them in.
  const Reading& reading() const;
  void set_reading(const Reading& reading);
  Matcher Copy() const;

 private:
  friend class GrammarSet;
  struct Data;
  bool MayBegin();  // some token may come first
  explicit Matcher(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

// A tool that may be called: its name, and the JSON schema of its arguments.
struct ToolSchema {
  std::string name;
  std::string parameters;
};

// How calls are written: `begin` {"name": ..., ARGUMENTS: {...}} `end`, and `between` two of them.
// The name comes first, so that a call that is cut short is one of that name.
struct CallSyntax {
  std::string begin = {}, end = {}, between = {};
  std::string arguments = "arguments";
  bool several = false;  // false: exactly one call
};

// How a call goes on that the model has begun by its marker: {"name": ..., ARGUMENTS: {...}} `end`,
// with white space around the object and the order of its members as the model likes.
struct BegunCallSyntax {
  std::string end = {};
  std::string arguments = "arguments";
  // The object stands in a list; or the call is NAME[ARGS]{...}, maybe with [CALL_ID]ID before
  // [ARGS], or NAME{...}.
  bool listed = false;
  bool several = false;  // objects in a list; false: exactly one
};

// Makes grammars for the vocabulary of one model; keeps what it has made. Thread-safe.
class GrammarSet {
 public:
  // Control tokens with these texts stand for their text; others cannot be written.
  explicit GrammarSet(const tokenizer::Tokenizer& tokenizer,
                      std::span<const std::string_view> markers = {});
  ~GrammarSet();

  // `schema` is JSON text; "{}" is any object. Errors: no schema, one that cannot be satisfied, or
  // one that takes too long: of more than 32 KiB, 1,000 values, 64 levels, 256 bytes in patterns, a
  // pattern that repeats a group, a count of properties times values above 1,000. Compiling takes
  // the caller's thread and cannot be interrupted.
  Result<Matcher> JsonSchema(const std::string& schema) const;
  // A grammar in GBNF, llama.cpp's notation. Errors: those of EbnfFromGbnf (gbnf.h).
  Result<Matcher> Gbnf(const std::string& grammar) const;
  // Calls of tools. Errors: no tools, more than 128, a name of more than 256 bytes, schemas that
  // together, names included, are more than one schema may be.
  Result<Matcher> Calls(const CallSyntax& syntax, std::span<const ToolSchema> tools) const;
  // What follows the marker of a call. Errors: those of Calls.
  Result<Matcher> BegunCall(const BegunCallSyntax& syntax, std::span<const ToolSchema> tools) const;

 private:
  template <typename Compile>
  Result<Matcher> Make(const std::string& what, const Compile& compile) const;
  Result<Matcher> MakeCall(const std::string& format) const;  // of xgrammar's structural tags

  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::grammar

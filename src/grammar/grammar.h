#pragma once

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

// How far an answer has come in a grammar. State of one sequence.
class Matcher {
 public:
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  // Sets the logits of tokens that must not come next to -inf.  [vocabulary]
  void Mask(std::span<float> logits);
  // Requires: Mask left the token possible. False: it did not, and the state is as before.
  bool Accept(tokenizer::TokenId token);
  bool finished() const;  // only the end of generation may follow
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

// Makes grammars for the vocabulary of one model; keeps what it has made. Thread-safe.
class GrammarSet {
 public:
  explicit GrammarSet(const tokenizer::Tokenizer& tokenizer);
  ~GrammarSet();

  // `schema` is JSON text; "{}" is any object. Errors: no schema, one that cannot be kept, or one
  // that takes too long: of more than 32 KiB, 1,000 values, 64 levels, 256 bytes in patterns, a
  // pattern that repeats a group, a count of properties times values above 1,000. Compiling takes
  // the caller's thread and cannot be interrupted.
  Result<Matcher> JsonSchema(const std::string& schema) const;
  // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one or more of them. Errors: no
  // tools, a schema as above.
  Result<Matcher> HermesCalls(std::span<const ToolSchema> tools) const;

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::grammar

#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace winnow::runtime {

// Restricts the next token (grammars). State of one sequence.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets logits of tokens that must not come next to -inf. [vocabulary]
  virtual void Mask(std::span<float> logits) = 0;
  // Advances by a token that Mask left possible. False: the token is refused nevertheless, or there
  // is a problem().
  virtual bool Accept(tokenizer::TokenId token) = 0;
  virtual bool finished() const = 0;  // only the end of generation may follow
  virtual std::unique_ptr<TokenConstraint> Copy() const = 0;
  // Why generation cannot go on, an error in the constraint that the client sent; empty: it can.
  // Mask, Accept and finished() may detect it.
  virtual std::string problem() const { return {}; }
};

// The error of a constraint that refuses a token that its Mask left possible.
inline Error RefusedToken(tokenizer::TokenId token) {
  return {.message = "the grammar refuses token " + std::to_string(token) + ", which it allowed",
          .code = ErrorCode::kInternal};
}

// Adapts a grammar's matcher (grammar::Matcher). A template, because builds without grammars have
// no matcher.
template <typename Matcher>
class MatcherConstraint final : public TokenConstraint {
 public:
  explicit MatcherConstraint(Matcher matcher) : matcher_(std::move(matcher)) {}

  void Mask(std::span<float> logits) override { matcher_.Mask(logits); }
  bool Accept(tokenizer::TokenId token) override { return matcher_.Accept(token); }
  bool finished() const override { return matcher_.finished(); }
  std::string problem() const override { return matcher_.problem(); }
  std::unique_ptr<TokenConstraint> Copy() const override {
    return std::make_unique<MatcherConstraint>(matcher_.Copy());
  }

 private:
  Matcher matcher_;
};

}  // namespace winnow::runtime

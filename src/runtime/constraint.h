#pragma once

#include <memory>
#include <span>
#include <string>

#include "tokenizer/tokenizer.h"

namespace winnow::runtime {

// Restricts the next token (grammars). State of one sequence.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets logits of tokens that must not come next to -inf. [vocabulary]
  virtual void Mask(std::span<float> logits) = 0;
  virtual void Accept(tokenizer::TokenId token) = 0;
  virtual bool finished() const = 0;  // only the end of generation may follow
  virtual std::unique_ptr<TokenConstraint> Copy() const = 0;
  // Why the answer cannot go on, the fault of who asked for the constraint; empty: it can. Mask,
  // Accept and finished() may find it.
  virtual std::string problem() const { return {}; }
};

}  // namespace winnow::runtime

#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/generate/constraint.h"
#include "tokenizer/tokenizer.h"

namespace winnow::api {

enum class ConstraintKind { kJsonSchema, kGrammar };

// Makes constraints for one vocabulary. Thread-safe.
class TokenConstraintFactory {
 public:
  virtual ~TokenConstraintFactory() = default;
  // Errors: not a schema or grammar, or too large.
  virtual Result<std::unique_ptr<runtime::TokenConstraint>> Make(ConstraintKind kind,
                                                                 const std::string& text) const = 0;
};

// Null in a build without grammars. Does not keep a reference to the tokenizer.
std::shared_ptr<const TokenConstraintFactory> MakeTokenConstraintFactory(
    const tokenizer::Tokenizer& tokenizer);

}  // namespace winnow::api

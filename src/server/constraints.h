#pragma once

#include <memory>

#include "server/openai/options.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

// What restricts answers to JSON schemas, grammars and calls of tools; null in a build without
// grammars (docs/decisions/0014-jinja.md). It does not keep the tokenizer.
std::shared_ptr<const ConstraintFactory> MakeConstraints(const tokenizer::Tokenizer& tokenizer);

}  // namespace winnow::server

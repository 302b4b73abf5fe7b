#pragma once

#include <memory>

#include "server/openai/options.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

// Restricts answers to JSON schemas, grammars and tool calls; null in a build without grammars
// (docs/decisions/0014-jinja.md). The tokenizer need not outlive it.
std::shared_ptr<const ConstraintFactory> MakeConstraints(const tokenizer::Tokenizer& tokenizer);

}  // namespace winnow::server

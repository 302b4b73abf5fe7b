#pragma once

#include <string>

#include "base/result.h"

namespace winnow::grammar {

// Translates a grammar from GBNF, llama.cpp's notation (its grammars/README.md), to xgrammar's
// EBNF. Rules are renamed, so that no name is one of xgrammar's macros; the root rule is "r-root".
// Errors name the line: invalid GBNF, a rule that is undefined or defined twice, no rule "root",
// more than 32 KiB, 64 levels of brackets, 500 elements, or 2,000 once repetitions are expanded.
Result<std::string> EbnfFromGbnf(const std::string& text);

}  // namespace winnow::grammar

#pragma once

#include <string>

#include "base/result.h"

namespace winnow::grammar {

// The grammar for xgrammar, of one in GBNF, llama.cpp's notation (its grammars/README.md). Rules
// get other names, so that no name is one of xgrammar's macros, and the rule to begin with is
// "r-root". Errors name the line: what is no GBNF, a rule that is not defined or defined twice, no
// rule "root", more than 32 KiB, 64 levels of brackets, 500 elements, or 2,000 once repetitions are
// written out.
Result<std::string> EbnfFromGbnf(const std::string& text);

}  // namespace winnow::grammar

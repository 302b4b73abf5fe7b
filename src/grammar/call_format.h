#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "grammar/grammar.h"

// Tool calls as xgrammar's structural tags, in JSON.
namespace winnow::grammar {

// Some models, if no other token fits, write white space forever where the grammar allows it.
inline constexpr int kMaxSpaces = 16;

// Errors: those of GrammarSet::Calls.
Result<std::string> CallsFormat(const CallSyntax& syntax, std::span<const ToolSchema> tools);
Result<std::string> BegunCallFormat(const BegunCallSyntax& syntax,
                                    std::span<const ToolSchema> tools);

}  // namespace winnow::grammar

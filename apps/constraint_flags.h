#pragma once

#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "command_files.h"
#include "flags.h"
#include "winnow/model.h"
#include "winnow/sampling.h"

namespace winnow::apps {

// What an answer is restricted to, as llama.cpp has it; one of them.
struct ConstraintFlags {
  std::optional<std::string> grammar = {}, grammar_file = {};  // GBNF
  std::optional<std::string> schema = {}, schema_file = {};    // JSON
};

void AddConstraintFlags(FlagTable& table, ConstraintFlags& flags);

// What can be said before a model is loaded. Error: more than one flag.
Result<void> CheckConstraintFlags(const ConstraintFlags& flags);
void ReadsConstraintFiles(CommandFiles& files, const ConstraintFlags& flags);

// None where nothing is asked for. Errors: a file that cannot be read, a grammar or schema that is
// none, a build without grammars; the flag is named.
Result<Constraint> MakeConstraint(const ConstraintFlags& flags, const Model& model, Log& log);

}  // namespace winnow::apps

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

// llama.cpp's flags that restrict the output; at most one is given.
struct ConstraintFlags {
  std::optional<std::string> grammar = {}, grammar_file = {};  // GBNF
  std::optional<std::string> schema = {}, schema_file = {};    // JSON
};

void AddConstraintFlags(FlagTable& table, ConstraintFlags& flags);

// Checks that need no model. Error: more than one flag.
Result<void> CheckConstraintFlags(const ConstraintFlags& flags);
void ReadsConstraintFiles(CommandFiles& files, const ConstraintFlags& flags);

// No constraint if no flag is given. Errors, with the flag's name: a file that cannot be read, an
// invalid grammar or schema, a build without grammars.
Result<Constraint> MakeConstraint(const ConstraintFlags& flags, const Model& model, Log& log);

}  // namespace winnow::apps

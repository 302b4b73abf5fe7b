#include "constraint_flags.h"

#include <vector>

#include "text_input.h"

namespace winnow::apps {
namespace {

struct Named {
  const char* flag;
  const std::optional<std::string>* value;
  bool is_file;
  bool is_grammar;
};

std::vector<Named> Given(const ConstraintFlags& flags) {
  const Named all[] = {{"--grammar", &flags.grammar, false, true},
                       {"--grammar-file", &flags.grammar_file, true, true},
                       {"--json-schema", &flags.schema, false, false},
                       {"--json-schema-file", &flags.schema_file, true, false}};
  std::vector<Named> given;
  for (const Named& one : all) {
    if (one.value->has_value()) given.push_back(one);
  }
  return given;
}

}  // namespace

void AddConstraintFlags(FlagTable& table, ConstraintFlags& flags) {
  table.Group("What may be generated (builds with -DWINNOW_GRAMMAR=ON)");
  table.Add({"-j", "--json-schema"}, "SCHEMA", "JSON of this schema; '{}' is any object",
            &flags.schema);
  table.Add({"-jf", "--json-schema-file"}, "FILE", "the same, from a file", &flags.schema_file);
  table.Add({"--grammar"}, "GBNF", "text of this grammar, in llama.cpp's notation", &flags.grammar);
  table.Add({"--grammar-file"}, "FILE", "the same, from a file", &flags.grammar_file);
}

Result<void> CheckConstraintFlags(const ConstraintFlags& flags) {
  const std::vector<Named> given = Given(flags);
  if (given.size() < 2) return {};
  return Error{std::string("give only one of ") + given[0].flag + " and " + given[1].flag};
}

void ReadsConstraintFiles(CommandFiles& files, const ConstraintFlags& flags) {
  files.Reads("--grammar-file", flags.grammar_file);
  files.Reads("--json-schema-file", flags.schema_file);
}

Result<Constraint> MakeConstraint(const ConstraintFlags& flags, const Model& model, Log& log) {
  const std::vector<Named> given = Given(flags);
  if (given.empty()) return Constraint();
  const Named& asked = given[0];
  std::string text = **asked.value;
  if (asked.is_file) {
    WINNOW_ASSIGN(text, ReadTextFile(text, false, log));
  }
  auto made = asked.is_grammar ? model.NewGrammarConstraint(text) : model.NewJsonConstraint(text);
  if (!made) return Error{std::string(asked.flag) + ": " + made.error().message};
  return made;
}

}  // namespace winnow::apps

#include "constraint_flags.h"

#include <utility>

#include "server/constraints.h"
#include "text_input.h"

namespace winnow::apps {
namespace {

using server::ConstraintSpec;

struct Named {
  const char* flag;
  ConstraintSpec::Kind kind;
  const std::optional<std::string>* value;
  bool is_file;
};

std::vector<Named> Given(const ConstraintFlags& flags) {
  const Named all[] = {
      {"--grammar", ConstraintSpec::Kind::kGrammar, &flags.grammar, false},
      {"--grammar-file", ConstraintSpec::Kind::kGrammar, &flags.grammar_file, true},
      {"--json-schema", ConstraintSpec::Kind::kJsonSchema, &flags.schema, false},
      {"--json-schema-file", ConstraintSpec::Kind::kJsonSchema, &flags.schema_file, true}};
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

Result<std::unique_ptr<runtime::TokenConstraint>> MakeConstraint(
    const ConstraintFlags& flags, const tokenizer::Tokenizer& tokenizer, Log& log) {
  const std::vector<Named> given = Given(flags);
  if (given.empty()) return std::unique_ptr<runtime::TokenConstraint>();
  const Named& asked = given[0];
  std::string text = **asked.value;
  if (asked.is_file) {
    WINNOW_ASSIGN(text, ReadTextFile(text, false, log));
  }
  const auto factory = server::MakeConstraints(tokenizer);
  if (factory == nullptr) {
    return Error{std::string(asked.flag) +
                 ": this build has no grammars; run tools/fetch_xgrammar.sh and build with "
                 "-DWINNOW_GRAMMAR=ON"};
  }
  auto made = factory->Make({.kind = asked.kind, .text = std::move(text), .field = asked.flag});
  if (!made) return Error{std::string(asked.flag) + ": " + made.error().message};
  return made;
}

}  // namespace winnow::apps

#include <utility>

#include "api/constraints.h"
#include "grammar/grammar.h"

namespace winnow::api {
namespace {

class GrammarConstraintFactory final : public TokenConstraintFactory {
 public:
  explicit GrammarConstraintFactory(const tokenizer::Tokenizer& tokenizer) : grammars_(tokenizer) {}

  Result<std::unique_ptr<runtime::TokenConstraint>> Make(ConstraintKind kind,
                                                         const std::string& text) const override {
    WINNOW_ASSIGN(grammar::Matcher matcher, kind == ConstraintKind::kJsonSchema
                                                ? grammars_.JsonSchema(text)
                                                : grammars_.Gbnf(text));
    return std::unique_ptr<runtime::TokenConstraint>(
        std::make_unique<runtime::MatcherConstraint<grammar::Matcher>>(std::move(matcher)));
  }

 private:
  grammar::GrammarSet grammars_;
};

}  // namespace

std::shared_ptr<const TokenConstraintFactory> MakeTokenConstraintFactory(
    const tokenizer::Tokenizer& tokenizer) {
  return std::make_shared<GrammarConstraintFactory>(tokenizer);
}

}  // namespace winnow::api

#include <memory>
#include <utility>

#include "grammar/grammar.h"
#include "server/constraints.h"

namespace winnow::server {
namespace {

class GrammarConstraint final : public runtime::TokenConstraint {
 public:
  explicit GrammarConstraint(grammar::Matcher matcher) : matcher_(std::move(matcher)) {}

  void Mask(std::span<float> logits) override { matcher_.Mask(logits); }
  // Of a masked token, so it is accepted, or the matcher is broken and finished().
  void Accept(runtime::TokenId token) override { matcher_.Accept(token); }
  bool finished() const override { return matcher_.finished(); }
  std::unique_ptr<runtime::TokenConstraint> Copy() const override {
    return std::make_unique<GrammarConstraint>(matcher_.Copy());
  }

 private:
  grammar::Matcher matcher_;
};

class GrammarConstraints final : public ConstraintFactory {
 public:
  explicit GrammarConstraints(const tokenizer::Tokenizer& tokenizer) : grammars_(tokenizer) {}

  Result<std::unique_ptr<runtime::TokenConstraint>> FromSchema(
      const std::string& schema) const override {
    WINNOW_ASSIGN(grammar::Matcher matcher, grammars_.JsonSchema(schema));
    return std::unique_ptr<runtime::TokenConstraint>(
        std::make_unique<GrammarConstraint>(std::move(matcher)));
  }

 private:
  grammar::GrammarSet grammars_;
};

}  // namespace

std::shared_ptr<const ConstraintFactory> MakeConstraints(const tokenizer::Tokenizer& tokenizer) {
  return std::make_shared<GrammarConstraints>(tokenizer);
}

}  // namespace winnow::server

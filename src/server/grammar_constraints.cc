#include <memory>
#include <utility>

#include "base/check.h"
#include "grammar/grammar.h"
#include "server/constraints.h"

namespace winnow::server {
namespace {

class GrammarConstraint final : public runtime::TokenConstraint {
 public:
  explicit GrammarConstraint(grammar::Matcher matcher) : matcher_(std::move(matcher)) {}

  void Mask(std::span<float> logits) override { matcher_.Mask(logits); }
  // Of a masked token, so it is accepted, or there is a problem().
  void Accept(runtime::TokenId token) override { matcher_.Accept(token); }
  bool finished() const override { return matcher_.finished(); }
  std::string problem() const override { return matcher_.problem(); }
  std::unique_ptr<runtime::TokenConstraint> Copy() const override {
    return std::make_unique<GrammarConstraint>(matcher_.Copy());
  }

 private:
  grammar::Matcher matcher_;
};

grammar::CallSyntax CallSyntaxFrom(const ConstraintSpec& spec) {
  switch (spec.format) {
    case chat::ToolFormat::kLlama3:
      return {.between = "; ", .arguments = "parameters", .several = spec.several_calls};
    case chat::ToolFormat::kMistral:
      // One list for each call: the parser of answers takes them as they come.
      return {.begin = "[TOOL_CALLS] [", .end = "]", .several = false};
    case chat::ToolFormat::kHermes:
    case chat::ToolFormat::kNone:
      break;
  }
  return {.begin = "<tool_call>\n",
          .end = "\n</tool_call>",
          .between = "\n",
          .several = spec.several_calls};
}

class GrammarConstraints final : public ConstraintFactory {
 public:
  explicit GrammarConstraints(const tokenizer::Tokenizer& tokenizer) : grammars_(tokenizer) {}

  Result<std::unique_ptr<runtime::TokenConstraint>> Make(
      const ConstraintSpec& spec) const override {
    WINNOW_ASSIGN(grammar::Matcher matcher, MakeMatcher(spec));
    return std::unique_ptr<runtime::TokenConstraint>(
        std::make_unique<GrammarConstraint>(std::move(matcher)));
  }

 private:
  Result<grammar::Matcher> MakeMatcher(const ConstraintSpec& spec) const {
    switch (spec.kind) {
      case ConstraintSpec::Kind::kJsonSchema:
        return grammars_.JsonSchema(spec.text);
      case ConstraintSpec::Kind::kGrammar:
        return grammars_.Gbnf(spec.text);
      case ConstraintSpec::Kind::kCalls: {
        std::vector<grammar::ToolSchema> tools;
        for (const auto& tool : spec.tools) tools.push_back({tool.name, tool.parameters});
        return grammars_.Calls(CallSyntaxFrom(spec), tools);
      }
      case ConstraintSpec::Kind::kNone:
        break;
    }
    WINNOW_CHECK(false);
    return Error{};
  }

  grammar::GrammarSet grammars_;
};

}  // namespace

std::shared_ptr<const ConstraintFactory> MakeConstraints(const tokenizer::Tokenizer& tokenizer) {
  return std::make_shared<GrammarConstraints>(tokenizer);
}

}  // namespace winnow::server

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "grammar/grammar.h"
#include "server/auto_calls.h"
#include "server/constraints.h"

namespace winnow::server {
namespace {

grammar::CallSyntax CallSyntaxFrom(const ConstraintSpec& spec) {
  switch (spec.format) {
    case chat::ToolFormat::kLlama3:
      return {.between = "; ", .arguments = "parameters", .several = spec.several_calls};
    case chat::ToolFormat::kMistral:
      // Each call has its own list; the answer parser accepts several.
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

grammar::BegunCallSyntax BegunCallSyntaxFrom(const ConstraintSpec& spec) {
  switch (spec.format) {
    case chat::ToolFormat::kLlama3:
      return {.arguments = "parameters"};
    case chat::ToolFormat::kMistral:
      return {.listed = true, .several = spec.several_calls};
    case chat::ToolFormat::kHermes:
    case chat::ToolFormat::kNone:
      break;
  }
  return {.end = "</tool_call>"};
}

// The markers of all formats.
std::vector<std::string_view> Markers() {
  using Format = chat::ToolFormat;
  std::vector<std::string_view> markers;
  for (const Format format : {Format::kHermes, Format::kLlama3, Format::kMistral}) {
    const auto of_format = chat::ToolMarkers(format);
    markers.insert(markers.end(), of_format.begin(), of_format.end());
  }
  return markers;
}

class GrammarConstraints final : public ConstraintFactory {
 public:
  explicit GrammarConstraints(const tokenizer::Tokenizer& tokenizer) : grammars_(tokenizer) {
    const std::vector<std::string_view> markers = Markers();
    pieces_ = std::make_shared<AnswerPieces>(tokenizer, markers);
    // Calls need a vocabulary of their own only if control tokens stand for markers.
    if (pieces_->has_control_markers()) call_grammars_.emplace(tokenizer, markers);
  }

  Result<std::unique_ptr<runtime::TokenConstraint>> Make(
      const ConstraintSpec& spec, const std::function<bool()>& cancelled) const override {
    WINNOW_ASSIGN(grammar::Matcher matcher, MakeMatcher(spec, cancelled));
    if (spec.kind == ConstraintSpec::Kind::kAutoCalls) {
      const chat::AnswerOptions options = {.tools = spec.format,
                                           .starts_in_reasoning = spec.starts_in_reasoning};
      std::vector<std::string> names;
      for (const auto& tool : spec.tools) names.push_back(tool.name);
      return std::unique_ptr<runtime::TokenConstraint>(std::make_unique<AutoCalls>(
          pieces_, options, std::move(names), std::move(matcher), spec.several_calls));
    }
    return std::unique_ptr<runtime::TokenConstraint>(
        std::make_unique<runtime::MatcherConstraint<grammar::Matcher>>(std::move(matcher)));
  }

 private:
  Result<grammar::Matcher> MakeMatcher(const ConstraintSpec& spec,
                                       const std::function<bool()>& cancelled) const {
    const grammar::GrammarSet& of_calls = call_grammars_ ? *call_grammars_ : grammars_;
    std::vector<grammar::ToolSchema> tools;
    for (const auto& tool : spec.tools) tools.push_back({tool.name, tool.parameters});
    switch (spec.kind) {
      case ConstraintSpec::Kind::kJsonSchema:
        return grammars_.JsonSchema(spec.text, cancelled);
      case ConstraintSpec::Kind::kGrammar:
        return grammars_.Gbnf(spec.text, cancelled);
      case ConstraintSpec::Kind::kCalls:
        return of_calls.Calls(CallSyntaxFrom(spec), tools, cancelled);
      case ConstraintSpec::Kind::kAutoCalls:
        return of_calls.CallAfterMarker(BegunCallSyntaxFrom(spec), tools, cancelled);
      case ConstraintSpec::Kind::kNone:
        break;
    }
    WINNOW_CHECK(false);
    return Error{};
  }

  grammar::GrammarSet grammars_;
  std::optional<grammar::GrammarSet> call_grammars_;
  std::shared_ptr<const AnswerPieces> pieces_;
};

}  // namespace

std::shared_ptr<const ConstraintFactory> MakeConstraints(const tokenizer::Tokenizer& tokenizer) {
  return std::make_shared<GrammarConstraints>(tokenizer);
}

}  // namespace winnow::server

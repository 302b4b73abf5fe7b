#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/call_trigger.h"
#include "grammar/grammar.h"
#include "runtime/generate/constraint.h"

namespace winnow::server {

// The text of each token in a parsed answer. Control tokens have their text if they are among
// `markers`, otherwise none.
class AnswerPieces {
 public:
  AnswerPieces(const tokenizer::Tokenizer& tokenizer, std::span<const std::string_view> markers);

  const std::string& operator[](tokenizer::TokenId token) const {
    return pieces_[static_cast<size_t>(token)];
  }
  // Tokens that contain one of the characters.
  std::vector<tokenizer::TokenId> With(std::string_view characters) const;
  bool has_control_markers() const { return has_control_markers_; }

 private:
  std::vector<std::string> pieces_;
  bool has_control_markers_ = false;
};

// Leaves an answer unrestricted until the model begins a tool call (chat::CallTrigger), and
// restricts it to `call` until the call's end.
class AutoCalls final : public runtime::TokenConstraint {
 public:
  // `call` matches what follows a call's marker, for one of the `tools`. `several`: more calls may
  // follow; otherwise the answer ends with the first.
  AutoCalls(std::shared_ptr<const AnswerPieces> pieces, const chat::AnswerOptions& options,
            std::vector<std::string> tools, grammar::Matcher call, bool several);

  void Mask(std::span<float> logits) override;
  bool Accept(tokenizer::TokenId token) override;
  bool finished() const override { return over_ || !problem().empty(); }
  std::string problem() const override { return open_ ? open_->problem() : problem_; }
  std::unique_ptr<runtime::TokenConstraint> Copy() const override;

 private:
  struct Shared;
  AutoCalls(std::shared_ptr<const Shared> shared, chat::CallTrigger trigger)
      : shared_(std::move(shared)), trigger_(std::move(trigger)) {}
  grammar::Matcher NewCall() const;
  bool MayBegin(const std::string& call);

  std::shared_ptr<const Shared> shared_;
  chat::CallTrigger trigger_;
  std::optional<grammar::Matcher> open_;  // the call being written
  grammar::MatchCost cost_;               // work spent on the whole answer, without `open_`
  std::string problem_;                   // found while no call is open
  bool over_ = false;
};

}  // namespace winnow::server

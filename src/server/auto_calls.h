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

// What tokens stand for in an answer that is parsed: control tokens that are `markers` for their
// text, others for nothing.
class AnswerPieces {
 public:
  AnswerPieces(const tokenizer::Tokenizer& tokenizer, std::span<const std::string_view> markers);

  const std::string& operator[](tokenizer::TokenId token) const {
    return pieces_[static_cast<size_t>(token)];
  }
  // Tokens with one of the characters.
  std::vector<tokenizer::TokenId> With(std::string_view characters) const;
  bool has_control_markers() const { return has_control_markers_; }

 private:
  std::vector<std::string> pieces_;
  bool has_control_markers_ = false;
};

// Leaves an answer as it is until the model begins to call a tool (chat::CallTrigger); from there
// to the call's end it is what `call` allows.
class AutoCalls final : public runtime::TokenConstraint {
 public:
  // `call`: what follows a call's marker, of one of the `tools`. `several`: more may follow the
  // first; otherwise the answer ends with it.
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
  std::optional<grammar::Matcher> open_;  // of the call that is being written
  grammar::Reading reading_;              // of the whole answer, without `open_`
  std::string problem_;                   // before a call
  bool over_ = false;
};

}  // namespace winnow::server

#include "server/auto_calls.h"

#include <limits>
#include <utility>

namespace winnow::server {

AnswerPieces::AnswerPieces(const tokenizer::Tokenizer& tokenizer,
                           std::span<const std::string_view> markers) {
  pieces_.reserve(static_cast<size_t>(tokenizer.vocabulary_size()));
  for (int64_t token = 0; token < tokenizer.vocabulary_size(); ++token) {
    pieces_.push_back(tokenizer.Piece(static_cast<tokenizer::TokenId>(token)));
  }
  for (const std::string_view marker : markers) {
    const auto token = tokenizer.Find(marker);
    if (!token || tokenizer.Kind(*token) != tokenizer::TokenKind::kControl) continue;
    pieces_[static_cast<size_t>(*token)] = marker;
    has_control_markers_ = true;
  }
}

std::vector<tokenizer::TokenId> AnswerPieces::With(std::string_view characters) const {
  std::vector<tokenizer::TokenId> tokens;
  for (size_t token = 0; token < pieces_.size(); ++token) {
    if (pieces_[token].find_first_of(characters) == std::string::npos) continue;
    tokens.push_back(static_cast<tokenizer::TokenId>(token));
  }
  return tokens;
}

struct AutoCalls::Shared {
  std::shared_ptr<const AnswerPieces> pieces;
  std::vector<tokenizer::TokenId> ends;  // tokens that can complete a trigger
  grammar::Matcher call;
  bool several = false;
};

AutoCalls::AutoCalls(std::shared_ptr<const AnswerPieces> pieces, const chat::AnswerOptions& options,
                     std::vector<std::string> tools, grammar::Matcher call, bool several)
    : trigger_(options, std::move(tools)) {
  std::vector<tokenizer::TokenId> ends = pieces->With(chat::TriggerEnds(options.tools));
  cost_ = call.cost();
  shared_ = std::make_shared<Shared>(
      Shared{std::move(pieces), std::move(ends), std::move(call), several});
}

grammar::Matcher AutoCalls::NewCall() const {
  grammar::Matcher call = shared_->call.Copy();
  call.set_cost(cost_);
  return call;
}

bool AutoCalls::MayBegin(const std::string& call) {
  grammar::Matcher trial = NewCall();
  const bool may_begin = trial.AcceptText(call);
  cost_ = trial.cost();
  problem_ = trial.problem();
  return may_begin;
}

void AutoCalls::Mask(std::span<float> logits) {
  if (finished()) return;
  if (open_) return open_->Mask(logits);
  // A token that completes a trigger may contain the start of the call, which must match too.
  for (const tokenizer::TokenId token : shared_->ends) {
    const auto begun = trigger_.Peek((*shared_->pieces)[token]);
    if (!begun || MayBegin(*begun)) continue;
    if (!problem_.empty()) return;
    logits[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
  }
}

bool AutoCalls::Accept(tokenizer::TokenId token) {
  bool accepted = true;
  cost_.token_ms = 0;
  const auto begun = trigger_.Push((*shared_->pieces)[token]);
  if (open_) {
    accepted = open_->Accept(token);
  } else if (begun) {
    open_ = NewCall();
    // If the grammar does not match the text, it is no call. Mask leaves no such token.
    if (!open_->AcceptText(*begun) && open_->problem().empty()) open_.reset();
  }
  if (!open_ || !open_->problem().empty() || !open_->finished()) return accepted;
  if (!open_->problem().empty()) return accepted;  // finished() may set it
  cost_ = open_->cost();
  open_.reset();
  over_ = !shared_->several;
  return accepted;
}

std::unique_ptr<runtime::TokenConstraint> AutoCalls::Copy() const {
  std::unique_ptr<AutoCalls> copy(new AutoCalls(shared_, trigger_));
  if (open_) copy->open_ = open_->Copy();
  copy->cost_ = cost_;
  copy->problem_ = problem_;
  copy->over_ = over_;
  return copy;
}

}  // namespace winnow::server

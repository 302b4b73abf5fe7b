#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

using tokenizer::TokenId;

// A text as the model reads it.
struct Prompt {
  std::vector<TokenId> tokens;
  int64_t n_whole = 0;  // tokens before the middle was cut out; tokens.size() where nothing was
  bool truncated() const { return n_whole != static_cast<int64_t>(tokens.size()); }
};

// The last of a prompt as text, for people: about as much as a question is long.
std::string TextEnd(const tokenizer::Tokenizer& tokenizer, const std::vector<TokenId>& tokens);

// Whether a text is a user's message to an instruct model, or goes in as it is. Without a chat
// template both are the same.
enum class Style { kChat, kPlain };

// Writes texts down for one model and keeps them within its context.
class PromptWriter {
 public:
  // `chat_template` none: the model gets plain text. `context`: tokens of prompt and answer.
  PromptWriter(const tokenizer::Tokenizer& tokenizer,
               std::optional<tokenizer::ChatTemplate> chat_template, std::string system,
               int64_t context);

  bool has_template() const { return chat_template_.has_value(); }
  int64_t context() const { return context_; }
  // Tokens a prompt may have where `n_answer` are generated. At least three quarters of the
  // context, so that a small context still holds a prompt (the answer ends where the context does).
  int64_t MaxPromptTokens(int64_t n_answer) const;

  // The text as a prompt. One that is too long loses its middle, as in LongBench: the first and
  // the last half of the tokens that fit become text again, are joined, and then put into the
  // template. Errors: those of the template.
  Result<Prompt> Write(std::string_view text, Style style, int64_t n_answer) const;
  // The same, uncut.
  Result<std::vector<TokenId>> WriteWhole(std::string_view text, Style style) const;
  // Tokens of `continuation` as they come out after the whole of `text`. Error: none.
  Result<std::vector<TokenId>> Continuation(std::string_view text, Style style,
                                            std::string_view continuation) const;

  // A conversation up to the point where the model answers, or goes on if the last message is its
  // own, as marked text. Without a template: "USER: ...\nASSISTANT:".
  Result<std::vector<tokenizer::MarkedText>> Converse(
      std::span<const tokenizer::ChatMessage> messages) const;

 private:
  Result<std::vector<tokenizer::MarkedText>> Mark(std::string_view text, Style style) const;

  const tokenizer::Tokenizer& tokenizer_;
  std::optional<tokenizer::ChatTemplate> chat_template_;
  std::string system_;
  int64_t context_;
};

}  // namespace winnow::eval

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

// A text as tokens for the model.
struct Prompt {
  std::vector<TokenId> tokens;
  int64_t n_untruncated = 0;  // tokens before the middle was cut out; tokens.size() if nothing was
  bool truncated() const { return n_untruncated != static_cast<int64_t>(tokens.size()); }
};

// The end of a prompt as text, for display: about the length of a question.
std::string TextEnd(const tokenizer::Tokenizer& tokenizer, const std::vector<TokenId>& tokens);

// Whether a text becomes a user message to an instruct model or is used as it is. Without a chat
// template both are the same.
enum class Style { kChat, kPlain };

// Turns texts into prompts for one model and keeps them within its context.
class PromptWriter {
 public:
  // No `chat_template`: the model gets plain text. `context`: tokens of prompt and answer.
  PromptWriter(const tokenizer::Tokenizer& tokenizer,
               std::optional<tokenizer::ChatTemplate> chat_template, std::string system,
               int64_t context);

  bool has_template() const { return chat_template_.has_value(); }
  int64_t context() const { return context_; }
  // The maximum length of a prompt when `n_answer` tokens are to be generated. At least three
  // quarters of the context, so that a small context still holds a prompt (the answer then ends
  // with the context).
  int64_t MaxPromptTokens(int64_t n_answer) const;

  // The text as a prompt. A text that is too long loses its middle, as in LongBench: the first and
  // the last half of the tokens that fit are decoded, joined, and put into the template. Errors:
  // those of the template; the template alone is too long.
  Result<Prompt> Write(std::string_view text, Style style, int64_t n_answer) const;
  // The same, never shortened.
  Result<std::vector<TokenId>> WriteWhole(std::string_view text, Style style) const;
  // The tokens that `continuation` adds after the whole of `text`. Errors: those of the template;
  // it adds none.
  Result<std::vector<TokenId>> Continuation(std::string_view text, Style style,
                                            std::string_view continuation) const;

  // A conversation as marked text, up to the point where the model answers, or continues if the
  // last message is its own. Without a template: "USER: ...\nASSISTANT:".
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

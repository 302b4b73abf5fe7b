#include "eval/run/prompt.h"

#include <algorithm>
#include <span>
#include <utility>

namespace winnow::eval {

using tokenizer::ChatMessage;
using tokenizer::MarkedText;

std::string TextEnd(const tokenizer::Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  constexpr size_t kTokensShown = 48;
  const size_t n = std::min(kTokensShown, tokens.size());
  return (n < tokens.size() ? "…" : "") + tokenizer.Decode(std::span(tokens).last(n));
}

PromptWriter::PromptWriter(const tokenizer::Tokenizer& tokenizer,
                           std::optional<tokenizer::ChatTemplate> chat_template, std::string system,
                           int64_t context)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      system_(std::move(system)),
      context_(context) {}

int64_t PromptWriter::MaxPromptTokens(int64_t n_answer) const {
  return std::max<int64_t>(1, context_ - std::min(n_answer, context_ / 4));
}

Result<std::vector<MarkedText>> PromptWriter::Converse(
    std::span<const ChatMessage> messages) const {
  if (chat_template_) {
    std::vector<ChatMessage> all;
    if (!system_.empty()) all.push_back({"system", system_});
    all.insert(all.end(), messages.begin(), messages.end());
    return chat_template_->Format(all, true);
  }
  std::string text = system_.empty() ? "" : system_ + "\n";
  for (const ChatMessage& message : messages) {
    const bool user = message.role == "user";
    text += (user ? "USER: " + message.content + "\nASSISTANT:" : message.content);
    if (!user && &message != &messages.back()) text += "\n";
  }
  return std::vector<MarkedText>{{text, false}};
}

Result<std::vector<MarkedText>> PromptWriter::Mark(std::string_view text, Style style) const {
  if (style == Style::kPlain || !chat_template_) {
    return std::vector<MarkedText>{{std::string(text), false}};
  }
  const ChatMessage message = {"user", std::string(text)};
  return Converse(std::span(&message, 1));
}

Result<std::vector<TokenId>> PromptWriter::WriteWhole(std::string_view text, Style style) const {
  WINNOW_ASSIGN(const std::vector<MarkedText> marked, Mark(text, style));
  return tokenizer_.EncodeMarked(marked);
}

Result<Prompt> PromptWriter::Write(std::string_view text, Style style, int64_t n_answer) const {
  Prompt prompt;
  WINNOW_ASSIGN(prompt.tokens, WriteWhole(text, style));
  prompt.n_untruncated = static_cast<int64_t>(prompt.tokens.size());
  const int64_t max = MaxPromptTokens(n_answer);
  if (prompt.n_untruncated <= max) return prompt;

  const std::vector<TokenId> tokens =
      tokenizer_.Encode(text, {.add_special = false, .parse_special = false});
  const std::span<const TokenId> all(tokens);
  const auto n_template = prompt.n_untruncated - static_cast<int64_t>(tokens.size());
  int64_t half = std::max<int64_t>(0, max - n_template) / 2;
  // Encoding the joined halves may give a few tokens more than were kept, as tokens can differ
  // where the halves meet and where the text begins. Then cut a little more.
  for (;;) {
    half = std::min(half, static_cast<int64_t>(tokens.size()) / 2);
    const std::string kept = tokenizer_.Decode(all.first(static_cast<size_t>(half))) +
                             tokenizer_.Decode(all.last(static_cast<size_t>(half)));
    WINNOW_ASSIGN(prompt.tokens, WriteWhole(kept, style));
    const int64_t excess = static_cast<int64_t>(prompt.tokens.size()) - max;
    if (excess <= 0) return prompt;
    if (half == 0) {
      return Error{"the chat template alone is " + std::to_string(prompt.tokens.size()) +
                   " tokens, the context leaves " + std::to_string(max) + " for a prompt"};
    }
    half -= std::min(half, (excess + 1) / 2);
  }
}

Result<std::vector<TokenId>> PromptWriter::Continuation(std::string_view text, Style style,
                                                        std::string_view continuation) const {
  WINNOW_ASSIGN(std::vector<MarkedText> marked, Mark(text, style));
  const size_t n_prompt = tokenizer_.EncodeMarked(marked).size();
  marked.push_back({std::string(continuation), false});
  std::vector<TokenId> tokens = tokenizer_.EncodeMarked(marked);
  if (tokens.size() <= n_prompt) {
    return Error{"'" + std::string(continuation) + "' adds no token to its prompt"};
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n_prompt));
  return tokens;
}

}  // namespace winnow::eval

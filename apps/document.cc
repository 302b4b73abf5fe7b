#include "document.h"

namespace winnow::apps {

Result<tokenizer::ChatTemplate> ChooseTemplate(const std::string& name, const gguf::File& file,
                                               Log& log) {
  if (!name.empty()) return tokenizer::ChatTemplate::ByName(name);
  WINNOW_ASSIGN(const auto source, file.String("tokenizer.chat_template"));
  WINNOW_ASSIGN(const auto choice, tokenizer::DetectChatTemplate(source.value_or("")));
  if (!choice.warning.empty()) log.Warning(choice.warning);
  return choice.chat_template;
}

Result<void> CheckTokens(std::string_view what, int64_t n_tokens, int64_t capacity) {
  if (n_tokens <= capacity) return {};
  return Error{std::string(what) + " is " + std::to_string(n_tokens) +
               " tokens, the context holds " + std::to_string(capacity) + "; -c " +
               std::to_string(n_tokens + kTokensOfAnAnswer) +
               " holds it, and --kv-method streaming --kv-size 1024 --prefill-chunk 512 reads a "
               "text of any length, of which it keeps the end"};
}

Result<void> CheckTextSize(const Model& model, int64_t capacity, std::string_view text) {
  // Shorter texts are tokenized at once, so that an error can give the exact number of tokens.
  constexpr size_t kQuick = size_t{8} << 20;
  if (text.size() <= kQuick) return {};
  const int64_t at_least = model.MinTokens(static_cast<int64_t>(text.size()));
  if (at_least <= capacity) return {};
  return Error{"the text is at least " + std::to_string(at_least) + " tokens, the context holds " +
               std::to_string(capacity) +
               "; -c gives it a larger one, and winnow run with --kv-method streaming --kv-size "
               "1024 --prefill-chunk 512 reads a text of any length, of which it keeps the end"};
}

}  // namespace winnow::apps

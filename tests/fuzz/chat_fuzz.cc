// Chat formats: a model's own template is recognised or not, and conversations of any text are
// formatted. Text from a user never becomes a control token.
//
// The first line is the source of a template; a line that begins with a role's letter (s, u, a, or
// x for tool) begins a message.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/testing/small_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace {

using winnow::tokenizer::ChatMessage;
using winnow::tokenizer::ChatTemplate;
using winnow::tokenizer::MarkedText;
using winnow::tokenizer::TokenId;
using winnow::tokenizer::Tokenizer;
using winnow::tokenizer::TokenKind;
namespace small = winnow::tokenizer::testing;

std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::vector<ChatMessage> MessagesFrom(std::string_view text) {
  std::vector<ChatMessage> messages;
  while (!text.empty()) {
    const std::string_view line = TakeLine(text);
    const char letter = line.empty() ? ' ' : line[0];
    const char* role = letter == 's'   ? "system"
                       : letter == 'u' ? "user"
                       : letter == 'a' ? "assistant"
                       : letter == 'x' ? "tool"
                                       : nullptr;
    if (role != nullptr || messages.empty()) {
      messages.push_back(
          {role == nullptr ? "user" : role, std::string(line.substr(line.size() > 0))});
    } else {
      messages.back().content += "\n" + std::string(line);
    }
  }
  return messages;
}

void Check(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
           const std::vector<ChatMessage>& messages) {
  for (const bool open : {false, true}) {
    const auto written = chat_template.Format(messages, open);
    if (!written) {
      WINNOW_CHECK(!written.error().message.empty());
      continue;
    }
    std::string joined;
    for (const MarkedText& stretch : *written) joined += stretch.text;
    const std::vector<TokenId> tokens = tokenizer.EncodeMarked(*written, false);
    WINNOW_CHECK(tokenizer.Decode(tokens, true) == joined);
    // The same text, none of it marked as the template's: no control token.
    const MarkedText plain = {.text = joined, .parse_special = false};
    for (const TokenId token : tokenizer.EncodeMarked({&plain, 1}, false)) {
      WINNOW_CHECK(tokenizer.Kind(token) != TokenKind::kControl);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    small::VocabularyBuilder builder("gpt2");
    const auto bytes = small::SmallBytePairs();
    for (size_t i = 0; i < bytes.texts.size(); ++i) builder.Token(bytes.texts[i], bytes.kinds[i]);
    for (const char* token : {"<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|eot_id|>",
                              "<|start_header_id|>", "<|end_header_id|>"}) {
      builder.Token(token, TokenKind::kControl);
    }
    return small::Make(builder.Build());
  }();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view source = TakeLine(text);
  const std::vector<ChatMessage> messages = MessagesFrom(text);
  const auto found = winnow::tokenizer::DetectChatTemplate(source);
  if (found) Check(*tokenizer, found->chat_template, messages);
  const auto names = winnow::tokenizer::ChatTemplateNames();
  const auto named = ChatTemplate::ByName(names[source.size() % names.size()]);
  WINNOW_CHECK(named.has_value());
  Check(*tokenizer, *named, messages);
  return 0;
}

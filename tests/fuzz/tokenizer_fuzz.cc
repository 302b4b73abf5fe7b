// Feeds arbitrary bytes to the tokenizers: what is encoded must decode to the same bytes, and to
// valid UTF-8 when streamed.
//
// The first byte chooses the vocabulary and whether control tokens are parsed, the rest is the
// text. The vocabularies are small and cover every byte; pre-tokenizers differ in their
// expressions, so there is one vocabulary for each.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/testing/small_vocabulary.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using winnow::tokenizer::StreamDecoder;
using winnow::tokenizer::TokenId;
using winnow::tokenizer::Tokenizer;
using winnow::tokenizer::Vocabulary;
namespace small = winnow::tokenizer::testing;

std::vector<std::unique_ptr<Tokenizer>> MakeTokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(small::Make(small::SmallSentencePiece()));
  Vocabulary without_prefix = small::SmallSentencePiece();
  without_prefix.add_space_prefix = false;
  tokenizers.push_back(small::Make(without_prefix));
  for (const char* pre : {"llama-bpe", "qwen2", "qwen35", "gpt-2", "smollm", "falcon", "default",
                          "tekken", "gpt-4o", "deepseek-v3"}) {
    Vocabulary vocabulary = small::SmallBytePairs();
    vocabulary.pre = pre;
    tokenizers.push_back(small::Make(vocabulary));
  }
  return tokenizers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<Tokenizer>> tokenizers = MakeTokenizers();
  if (size == 0) return 0;
  const bool parse_special = (data[0] & 0x80) != 0;
  const Tokenizer& tokenizer = *tokenizers[(data[0] & 0x7F) % tokenizers.size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  // SentencePiece writes a space as U+2581 and cannot tell the two apart.
  if (tokenizer.model_name() == "llama" && text.find("\xE2\x96\x81") != std::string_view::npos)
    return 0;

  const std::vector<TokenId> tokens =
      tokenizer.Encode(text, {.add_special = false, .parse_special = parse_special});
  WINNOW_CHECK(tokenizer.Decode(tokens, true) == text);
  StreamDecoder decoder(tokenizer, true);
  std::string streamed;
  for (const TokenId token : tokens) streamed += decoder.Push(token);
  streamed += decoder.Finish();
  WINNOW_CHECK(winnow::tokenizer::IsUtf8(streamed));
  return 0;
}

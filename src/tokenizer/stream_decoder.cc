#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace winnow::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool render_special)
    : tokenizer_(&tokenizer), render_special_(render_special) {}

std::string StreamDecoder::Push(TokenId token) {
  held_ += tokenizer_->Piece(token, render_special_);
  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const CharacterStart start = ClassifyStart(rest);
    if (!start.complete) break;
    text += start.valid ? rest.substr(0, start.length) : kReplacement;
    rest.remove_prefix(start.length);
  }
  held_.erase(0, held_.size() - rest.size());
  return text;
}

std::string StreamDecoder::Finish() {
  // Push holds back at most the beginning of one character.
  const std::string text(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return text;
}

}  // namespace winnow::tokenizer

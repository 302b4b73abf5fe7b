#include "grammar/testing/large_vocabulary.h"

#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/rng.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::grammar::testing {
namespace {

using tokenizer::TokenKind;

constexpr int kSize = 128'000;
constexpr std::array<std::string_view, 30> kSyllables = {
    "a",  "e",  "o",   "in", "er", "st", "th", "re", "on", "al",  "ti", "con",  "me", "le", "ra",
    "is", "un", "ver", "ly", "ma", "po", "lo", "ca", "de", "ing", "ed", "tion", "k",  "b",  "sh"};
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~ \n\t";

class Builder {
 public:
  Builder() : builder_("llama") {
    builder_.Token("<unk>", TokenKind::kUnknown);
    builder_.Token("<s>", TokenKind::kControl);
    builder_.Token("</s>", TokenKind::kControl);
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::string digits = {kHex[byte / 16], kHex[byte % 16]};
      builder_.Token("<0x" + digits + ">", TokenKind::kByte);
    }
    size_ = 259;
  }

  void Add(const std::string& text) {
    std::string spelled;
    for (const char c : text) spelled += c == ' ' ? "\u2581" : std::string(1, c);
    if (!seen_.insert(spelled).second) return;
    builder_.Token(spelled, TokenKind::kNormal, -static_cast<float>(size_));
    ++size_;
  }
  size_t Draw(size_t n) { return rng_.Next() % n; }
  int size() const { return size_; }
  std::unique_ptr<tokenizer::Tokenizer> Make() const {
    return tokenizer::testing::Make(builder_.Build());
  }

 private:
  tokenizer::testing::VocabularyBuilder builder_;
  std::unordered_set<std::string> seen_;
  Rng rng_{5};
  int size_ = 0;
};

std::string ChineseCharacter(size_t n) {
  const size_t point = 0x4E00 + n;
  return {static_cast<char>(0xE0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 0x3F)),
          static_cast<char>(0x80 | (point & 0x3F))};
}

}  // namespace

std::unique_ptr<tokenizer::Tokenizer> LargeVocabulary() {
  Builder made;
  for (char c = '!'; c <= '~'; ++c) made.Add(std::string(1, c));
  for (int i = 0; i < 1000; ++i) made.Add(std::to_string(i));
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t n = 1 + made.Draw(4); n > 0; --n)
      text += kPunctuation[made.Draw(kPunctuation.size())];
    made.Add(text);
  }
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t n = 1 + made.Draw(3); n > 0; --n) text += ChineseCharacter(made.Draw(0x5000));
    made.Add(text);
  }
  while (made.size() < kSize) {
    std::string word;
    for (size_t n = 1 + made.Draw(4); n > 0; --n) word += kSyllables[made.Draw(kSyllables.size())];
    const size_t kind = made.Draw(8);
    if (kind == 0) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    made.Add(kind > 2 ? " " + word : word);
  }
  return made.Make();
}

}  // namespace winnow::grammar::testing

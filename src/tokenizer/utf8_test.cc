#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace winnow::tokenizer {
namespace {

TEST(Utf8, LengthsOfWellFormedCharacters) {
  EXPECT_EQ(CharacterLength("a"), 1u);
  EXPECT_EQ(CharacterLength("ä"), 2u);
  EXPECT_EQ(CharacterLength("中"), 3u);
  EXPECT_EQ(CharacterLength("🚀 and more"), 4u);
  EXPECT_EQ(CharacterLength(std::string_view("\0", 1)), 1u);
  EXPECT_EQ(CharacterLength("\xF4\x8F\xBF\xBF"), 4u);  // U+10FFFF, the last code point
}

TEST(Utf8, RefusesWhatRfc3629Forbids) {
  for (const char* text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE4\xB8", "\xC3(", "\xE4\xB8("}) {
    EXPECT_EQ(CharacterLength(text), 0u) << ::testing::PrintToString(text);
    EXPECT_FALSE(IsUtf8(text)) << ::testing::PrintToString(text);
  }
  EXPECT_EQ(CharacterLength(""), 0u);
  EXPECT_TRUE(IsUtf8(""));
}

// A textbook decoder, for comparison.
bool IsWellFormed(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto at = [&](size_t place) {
      return place < text.size() ? static_cast<uint8_t>(text[place]) : 0;
    };
    const int lead = at(i);
    int n = lead < 0x80             ? 1
            : (lead & 0xE0) == 0xC0 ? 2
            : (lead & 0xF0) == 0xE0 ? 3
            : (lead & 0xF8) == 0xF0 ? 4
                                    : 0;
    if (n == 0) return false;
    uint32_t code = n == 1 ? lead : lead & (0x7F >> n);
    for (int k = 1; k < n; ++k) {
      if ((at(i + k) & 0xC0) != 0x80) return false;
      code = code << 6 | (at(i + k) & 0x3F);
    }
    const uint32_t min[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < min[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += n;
  }
  return true;
}

TEST(Utf8, AgreesWithAPlainDecoderOnAllTwoByteTextsAndManyLongerOnes) {
  std::string text(2, '\0');
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      text = {static_cast<char>(a), static_cast<char>(b)};
      ASSERT_EQ(IsUtf8(text), IsWellFormed(text)) << a << ' ' << b;
    }
  }
  for (int a = 0xE0; a < 0xF8; ++a) {
    for (int b = 0x7F; b <= 0xC0; ++b) {
      for (int c : {0x00, 0x7F, 0x80, 0xBF, 0xC0}) {
        text = {static_cast<char>(a), static_cast<char>(b), static_cast<char>(c), '\x80'};
        ASSERT_EQ(IsUtf8(text), IsWellFormed(text)) << a << ' ' << b << ' ' << c;
        text.pop_back();
        ASSERT_EQ(IsUtf8(text), IsWellFormed(text)) << a << ' ' << b << ' ' << c;
      }
    }
  }
}

TEST(Utf8, ValidPrefixEndsBeforeTheFirstBadByteWhereverItIs) {
  for (size_t n = 0; n < 40; ++n) {
    EXPECT_EQ(ValidPrefixLength(std::string(n, 'a') + "\xFF" + std::string(20, 'b')), n);
    EXPECT_EQ(ValidPrefixLength(std::string(n, 'a') + "ä\xE4\xB8"), n + 2);
  }
}

TEST(Utf8, TellsIncompleteFromImpossible) {
  EXPECT_FALSE(ClassifyStart("\xE4\xB8").complete);
  EXPECT_EQ(ClassifyStart("\xE4\xB8").length, 2u);
  EXPECT_TRUE(ClassifyStart("\xE4\xB8(").complete);
  EXPECT_EQ(ClassifyStart("\xE4\xB8(").length, 2u);     // both bytes are one maximal subpart
  EXPECT_EQ(ClassifyStart("\xED\xA0\x80").length, 1u);  // A0 cannot follow ED
  EXPECT_EQ(ClassifyStart("\xFF").length, 1u);
}

}  // namespace
}  // namespace winnow::tokenizer

#include <gtest/gtest.h>

#include <string>

#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::tokenizer {
namespace {

// Tokens 0 to 255 of this vocabulary are the bytes.
class StreamDecoderTest : public ::testing::Test {
 protected:
  // Output of each byte, separated by bars, then a slash and the output of Finish.
  std::string Stream(std::string_view bytes) {
    StreamDecoder decoder(*tokenizer_);
    std::string shown;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i > 0) shown += '|';
      shown += decoder.Push(static_cast<uint8_t>(bytes[i]));
    }
    return shown + "/" + decoder.Finish();
  }

  std::unique_ptr<Tokenizer> tokenizer_ = testing::Make(testing::SmallBytePairs());
};

TEST_F(StreamDecoderTest, HoldsBackUntilACharacterIsComplete) {
  EXPECT_EQ(Stream("abc"), "a|b|c/");
  EXPECT_EQ(Stream("aäb"), "a||ä|b/");
  EXPECT_EQ(Stream("中"), "||中/");
  EXPECT_EQ(Stream("🚀"), "|||🚀/");
  EXPECT_EQ(Stream("ä中"), "|ä|||中/");
}

TEST_F(StreamDecoderTest, WhatIsLeftIncompleteIsOneReplacement) {
  EXPECT_EQ(Stream("\xC3"), "/\uFFFD");
  EXPECT_EQ(Stream("\xE4\xB8"), "|/\uFFFD");
  EXPECT_EQ(Stream("\xF0\x9F\x9A"), "||/\uFFFD");
  EXPECT_EQ(Stream(""), "/");
}

TEST_F(StreamDecoderTest, WhatCanNeverBecomeACharacterIsReplacedAtOnce) {
  EXPECT_EQ(Stream("\xFF"), "\uFFFD/");
  EXPECT_EQ(Stream("\x80z"), "\uFFFD|z/");
  EXPECT_EQ(Stream("\xC3z"), "|\uFFFDz/");
  EXPECT_EQ(Stream("\xE4\xB8z"), "||\uFFFDz/");
  EXPECT_EQ(Stream("\xE4\xC3\xA4"), "|\uFFFD|ä/");
  EXPECT_EQ(Stream("\xED\xA0\x80"), "|\uFFFD\uFFFD|\uFFFD/");  // half a surrogate pair
  EXPECT_EQ(Stream("\xC0\x80"), "\uFFFD|\uFFFD/");
}

TEST_F(StreamDecoderTest, AfterFinishItIsAsNew) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.Push(0xC3), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Push(0xA4), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST_F(StreamDecoderTest, ControlTokensShowOnlyIfAskedFor) {
  StreamDecoder silent(*tokenizer_);
  StreamDecoder open(*tokenizer_, true);
  EXPECT_EQ(silent.Push(261), "");
  EXPECT_EQ(open.Push(261), "<|end|>");
}

TEST_F(StreamDecoderTest, EverySplitOfATextGivesTheSameText) {
  const std::string text = "aä中🚀z";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      std::string joined;
      const std::string parts[] = {text.substr(0, first), text.substr(first, second - first),
                                   text.substr(second)};
      StreamDecoder decoder(*tokenizer_);
      for (const std::string& part : parts) {
        for (const TokenId token : tokenizer_->Encode(part, {.add_special = false}))
          joined += decoder.Push(token);
      }
      EXPECT_EQ(joined + decoder.Finish(), text);
    }
  }
}

TEST(StreamDecoder, ByteTokensAndALeadingSpaceOfSentencePiece) {
  const auto tokenizer = testing::Make(testing::SmallSentencePiece());
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.Push(268), " hello");  // keeps the space: the text continues a prompt
  EXPECT_EQ(decoder.Push(3 + 0xE4), "");
  EXPECT_EQ(decoder.Push(3 + 0xB8), "");
  EXPECT_EQ(decoder.Push(3 + 0xAD), "中");
  EXPECT_EQ(decoder.Push(3 + 0xE4), "");
  EXPECT_EQ(decoder.Push(268), "\uFFFD hello");
}

}  // namespace
}  // namespace winnow::tokenizer

#pragma once

#include <string>
#include <vector>

#include "runtime/generate/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace winnow::runtime {

// Turns generated tokens into final text: whole characters, stop strings decided.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  TextStream(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer), stops_(std::move(stops)) {}

  // Returns the text that became final with this token.
  std::string Push(tokenizer::TokenId token) { return stops_.Push(decoder_.Push(token)); }
  // Ends the stream and returns the text that was held back. It may turn out to contain a stop
  // string.
  std::string Finish() {
    std::string text = stops_.Push(decoder_.Finish());
    if (!stops_.stopped()) text += stops_.Finish();
    return text;
  }
  bool stopped() const { return stops_.stopped(); }
  const std::string& stopping_word() const { return stops_.stopping_word(); }

 private:
  tokenizer::StreamDecoder decoder_;
  StopStrings stops_;
};

}  // namespace winnow::runtime

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/generate/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace winnow::runtime {

// Turns generated tokens into final text: whole characters, stop strings decided.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  TextStream(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops)
      : may_stop_(!stops.empty()), decoder_(tokenizer), stops_(std::move(stops)) {}

  // Returns the text that became final with this token.
  std::string Push(tokenizer::TokenId token) {
    const std::string text = decoder_.Push(token);
    if (may_stop_) {
      decoded_ += text;
      // A token that ends within a character is shown only together with the next one.
      ends_.push_back(decoder_.holds_text() ? std::string::npos : decoded_.size());
    }
    return Shown(stops_.Push(text));
  }
  // Ends the stream and returns the text that was held back. It may turn out to contain a stop
  // string.
  std::string Finish() {
    std::string text = stops_.Push(decoder_.Finish());
    if (!stops_.stopped()) text += stops_.Finish();
    return Shown(std::move(text));
  }
  bool stopped() const { return stops_.stopped(); }
  const std::string& stopping_word() const { return stops_.stopping_word(); }

  // What was shown of a text that a stop string ended: `n_tokens` whole tokens, and the beginning
  // of the token in which the stop string begins.
  struct BeforeStop {
    int64_t n_tokens = 0;
    std::string rest;
  };
  // Requires: stopped().
  BeforeStop before_stop() const {
    BeforeStop shown;
    size_t end = 0;
    for (size_t i = 0; i < ends_.size(); ++i) {
      if (ends_[i] > n_shown_) continue;
      shown.n_tokens = static_cast<int64_t>(i) + 1;
      end = ends_[i];
    }
    shown.rest = decoded_.substr(end, n_shown_ - end);
    return shown;
  }

 private:
  std::string Shown(std::string text) {
    n_shown_ += text.size();
    return text;
  }

  bool may_stop_;  // there are stop strings; else nothing below decoder_ and stops_ is needed
  tokenizer::StreamDecoder decoder_;
  StopStrings stops_;
  std::string decoded_;       // all text, also what a stop string hides
  std::vector<size_t> ends_;  // of each token in it
  size_t n_shown_ = 0;        // bytes of it
};

}  // namespace winnow::runtime

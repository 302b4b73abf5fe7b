#pragma once

#include <memory>

#include "tokenizer/tokenizer.h"

namespace winnow::grammar::testing {

// 128,000 tokens of the kinds that models have: words with and without a space before them, numbers
// of up to three digits, punctuation, and Chinese text.
std::unique_ptr<tokenizer::Tokenizer> LargeVocabulary();

}  // namespace winnow::grammar::testing

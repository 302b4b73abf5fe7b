#pragma once

#include <string_view>

namespace winnow::eval {

// BLEU of one answer against one reference, 0..100, as sacrebleu's corpus_bleu computes it with
// tokenize="intl", smooth_method="exp": n-grams of orders 1 to 4, where the k-th precision of zero
// counts as 1/2^k matches, and the brevity penalty. The LM evaluation harness uses it for
// truthfulqa_gen.
double Bleu(std::string_view answer, std::string_view reference);

}  // namespace winnow::eval

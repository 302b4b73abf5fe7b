#pragma once

#include <string>
#include <string_view>

#include "eval/metrics/jieba.h"

// LongBench's scores of Chinese answers. [THUDM/LongBench metrics.py]
namespace winnow::eval {

// Lower case, without ASCII and Chinese punctuation and white space. [normalize_zh_answer]
std::string NormalizeChinese(std::string_view text);

// WordsF1 of the words that jieba cuts, each after NormalizeChinese; empty ones are dropped.
// [qa_f1_zh_score]
double ChineseQaF1(const Jieba& jieba, std::string_view answer, std::string_view reference);

// RougeL of the words that jieba cuts, joined by spaces. [rouge_zh_score]
double ChineseRougeL(const Jieba& jieba, std::string_view answer, std::string_view reference);

// The number n of "段落n"; empty if there is none.
// [retrieval_zh_score]
std::string ChineseParagraphNumber(std::string_view reference);

}  // namespace winnow::eval

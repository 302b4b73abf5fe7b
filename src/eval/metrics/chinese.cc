#include "eval/metrics/chinese.h"

#include "eval/metrics/normalise.h"
#include "eval/metrics/pattern.h"
#include "eval/metrics/qa_f1.h"
#include "eval/metrics/rouge.h"

namespace winnow::eval {

std::string NormalizeChinese(std::string_view text) {
  static const Pattern kPunctuation(
      "[!-/"
      ":-@\\[-`{-~"
      "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔"
      "〕〖〗〘〙〚"
      "〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏]");
  return Join(Words(kPunctuation.Replace(Lowercase(text), "")), "");
}

double ChineseQaF1(const Jieba& jieba, std::string_view answer, std::string_view reference) {
  const auto words = [&](std::string_view text) {
    std::vector<std::string> found;
    for (const std::string& word : jieba.Cut(text)) {
      std::string normalised = NormalizeChinese(word);
      if (!normalised.empty()) found.push_back(std::move(normalised));
    }
    return found;
  };
  return WordsF1(words(answer), words(reference));
}

double ChineseRougeL(const Jieba& jieba, std::string_view answer, std::string_view reference) {
  return RougeL(Join(jieba.Cut(answer), " "), Join(jieba.Cut(reference), " "));
}

std::string ChineseParagraphNumber(std::string_view reference) {
  static const Pattern kParagraph("段落(\\d+)");
  std::string number;
  kParagraph.Find(reference, &number, 1);
  return number;
}

}  // namespace winnow::eval

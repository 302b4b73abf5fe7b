#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/run/compare.h"
#include "report/record.h"

namespace winnow::apps {

// What `winnow compare` says of an answer, on the terminal and on its page.
inline constexpr const char* kExceedsNote =
    "(over): more than --equal-bytes allows; this method cannot keep less.";
// "snapkv", or "snapkv ratio 0.25" where there are several budgets.
std::string ToString(const eval::ComparedCache& cache);
bool HasBudgets(std::span<const eval::ComparedCache> caches);
// Bytes with lists in those of the full f16 cache: "25.1 %", with "(over)" where that is more than
// was asked for.
std::string ShareText(const eval::ComparedCache& cache);
// Whether the text has the answer as a whole word or number, in any case.
bool HasAnswer(const std::string& text, const std::string& expected);
// What follows an answer that is not right, or not the full cache's where nobody said what is
// right: "  [not ...]"; empty otherwise.
std::string AnswerMark(const eval::Answer& answer, const eval::Answer& full,
                       const std::string& expected);

// What `winnow compare` was asked.
struct AskedQuestions {
  std::vector<std::string> texts;  // one or more
  std::vector<std::string> right;  // the answer to each; empty: unknown
  bool hidden = false;             // they came after the document was compressed

  std::string right_answer(size_t question) const { return right.empty() ? "" : right[question]; }
};
// "yes" or "no", or how many of several: whether the answers are right, or, where nobody said what
// is right, the full cache's.
std::string GoodText(const eval::ComparedCache& cache, const eval::ComparedCache& full,
                     const AskedQuestions& asked);

// What `winnow compare` found, as a page: the answers side by side, what each cost, and which
// tokens of the prompt each cache kept.
struct ComparePage {
  AskedQuestions asked;
  report::Record facts;
  std::span<const eval::ComparedCache> caches;  // the full one first; with states
  std::span<const runtime::TokenId> prompt;
};
// Writes it, and its figures and data beside it. Error: the disk.
Result<void> WriteComparePage(const ComparePage& page, const tokenizer::Tokenizer& tokenizer,
                              const std::string& path);

}  // namespace winnow::apps

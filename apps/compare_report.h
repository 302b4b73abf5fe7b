#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/run/compare.h"
#include "report/record.h"

namespace winnow::apps {

// How `winnow compare` shows an answer, on the terminal and on its page.
inline constexpr const char* kExceedsNote =
    "(over): more than --equal-bytes allows; this method cannot keep less.";
// "snapkv", or "snapkv ratio 0.25" if there are several budgets.
std::string ToString(const eval::ComparedCache& cache);
bool HasBudgets(std::span<const eval::ComparedCache> caches);
// Bytes with lists as a share of the full f16 cache: "25.1 %", with "(over)" if that is more than
// --equal-bytes asked for.
std::string ShareText(const eval::ComparedCache& cache);
// Whether `text` contains `expected` as a whole word or number, ignoring case.
bool HasAnswer(const std::string& text, const std::string& expected);
// Suffix of an answer that is wrong, or that differs from the full cache's if the right answer is
// unknown: "  [not ...]"; otherwise empty.
std::string AnswerMark(const eval::Answer& answer, const eval::Answer& full,
                       const std::string& expected);

// The questions of `winnow compare`.
struct AskedQuestions {
  std::vector<std::string> texts;  // one or more
  std::vector<std::string> right;  // the right answer to each; empty: unknown
  bool hidden = false;             // asked only after the document was compressed

  std::string right_answer(size_t question) const { return right.empty() ? "" : right[question]; }
};
// "yes" or "no", or the number of several: whether the answers are right, or equal the full cache's
// if the right answers are unknown.
std::string GoodText(const eval::ComparedCache& cache, const eval::ComparedCache& full,
                     const AskedQuestions& asked);

// The results of `winnow compare` as a page: the answers side by side, the cost of each, and the
// tokens of the prompt that each cache kept.
struct ComparePage {
  AskedQuestions asked;
  report::Record facts;
  std::span<const eval::ComparedCache> caches;  // the full cache first; with states
  std::span<const runtime::TokenId> prompt;
};
// Writes the page with its figures and data files. Error: they cannot be written.
Result<void> WriteComparePage(const ComparePage& page, const tokenizer::Tokenizer& tokenizer,
                              const std::string& path);

}  // namespace winnow::apps

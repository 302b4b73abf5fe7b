#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "eval/run/compare.h"
#include "report/record.h"

namespace winnow::apps {

// What `winnow compare` says of an answer, on the terminal and on its page.
inline constexpr const char* kExceedsNote =
    "(over): more than --equal-bytes allows; this method cannot keep less.";
// "snapkv", or "snapkv ratio 0.25" where there are several budgets.
std::string ToString(const eval::Answer& answer);
bool HasBudgets(std::span<const eval::Answer> answers);
// Bytes with lists in those of the full f16 cache: "25.1 %", with "(over)" where that is more than
// was asked for.
std::string ShareText(const eval::Answer& answer);
// Whether the text has the answer as a whole word or number, in any case.
bool HasAnswer(const std::string& text, const std::string& expected);
// What follows an answer that is not right, or not the full cache's where nobody said what is
// right: "  [not ...]"; empty otherwise.
std::string AnswerMark(const eval::Answer& answer, const eval::Answer& full,
                       const std::string& expected);

// What `winnow compare` found, as a page: the answers side by side, what each cost, and which
// tokens of the prompt each cache kept.
struct ComparePage {
  std::string question;
  report::Record facts;
  std::span<const eval::Answer> answers;  // the full cache's first; with states
  std::span<const runtime::TokenId> prompt;
  std::string expected;  // the right answer; empty: unknown
};
// Writes it, and its figures and data beside it. Error: the disk.
Result<void> WriteComparePage(const ComparePage& page, const tokenizer::Tokenizer& tokenizer,
                              const std::string& path);

}  // namespace winnow::apps

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

// Documents of the task `recall`: a fact is stated among others, and asked for at the end.
namespace winnow::eval {

enum class RecallKind { kNeedle, kKeyValue, kTwoHop, kFewShot, kDialogue };
inline constexpr std::string_view kRecallKinds[] = {"needle", "key-value", "two-hop", "few-shot",
                                                    "dialogue"};

struct RecallDocument {
  // One of three forms is filled in: a document and a question about it, a text to continue
  // (few-shot), or a conversation whose last message is the question (dialogue).
  std::string document, question;
  std::string continued;
  std::vector<tokenizer::ChatMessage> messages = {};
  std::string answer;
};

// Makes a document of about n_tokens. `depth`: where the fact asked for is stated, in per cent of
// the text; below 0: anywhere. (Few-shot lists: the place of the first example with the answer.)
RecallDocument MakeRecallDocument(RecallKind kind, int64_t n_tokens, double depth,
                                  const tokenizer::Tokenizer& tokenizer, Rng& rng);

}  // namespace winnow::eval

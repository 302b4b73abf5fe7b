#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

// Documents of the task `recall`: something is told, among other things, and asked for at the end.
namespace winnow::eval {

enum class RecallKind { kNeedle, kKeyValue, kTwoHop, kFewShot, kDialogue };
inline constexpr std::string_view kRecallKinds[] = {"needle", "key-value", "two-hop", "few-shot",
                                                    "dialogue"};

struct RecallDocument {
  // Of the form that is filled: a document and a question about it, a text that is continued
  // (few-shot), or a conversation whose last message asks (dialogue).
  std::string document, question;
  std::string continued;
  std::vector<tokenizer::ChatMessage> messages = {};
  std::string answer;
};

// About n_tokens of it; `depth`: where the fact asked for stands, per cent of the text; below 0:
// anywhere. (Few-shot lists: the example of the label asked for is the first one at that depth.)
RecallDocument MakeRecallDocument(RecallKind kind, int64_t n_tokens, double depth,
                                  const tokenizer::Tokenizer& tokenizer, Rng& rng);

}  // namespace winnow::eval

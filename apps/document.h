#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "gguf/file.h"
#include "tokenizer/chat_template.h"
#include "winnow/model.h"

namespace winnow::apps {

// The built-in chat template of that name, or the one that the model's file describes; a guess is
// reported to the log. Errors: an unknown name, an unreadable template.
Result<tokenizer::ChatTemplate> ChooseTemplate(const std::string& name, const gguf::File& file,
                                               Log& log);

constexpr int64_t kTokensOfAnAnswer = 256;  // context to leave for an answer

// The error if `what` ("the prompt") takes more tokens than a session of this capacity holds.
Result<void> CheckTokens(std::string_view what, int64_t n_tokens, int64_t capacity);

// Rejects a text of more than 8 MiB that cannot fit into a session of this capacity, without
// tokenizing it, which would take long and fill the memory.
Result<void> CheckTextSize(const Model& model, int64_t capacity, std::string_view text);

}  // namespace winnow::apps

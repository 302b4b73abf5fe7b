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

// The chat template of that name, or the one the model's file describes (a guess is told to the
// log). Errors: unknown name, an unreadable template.
Result<tokenizer::ChatTemplate> ChooseTemplate(const std::string& name, const gguf::File& file,
                                               Log& log);

// Error for a text of more than 8 MiB that a session of this capacity cannot hold whatever its
// tokens are: finding these would take long and fill the memory.
Result<void> CheckTextSize(const Model& model, int64_t capacity, std::string_view text);

}  // namespace winnow::apps

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "chat/prompt_writer.h"
#include "report/record.h"
#include "server/openai/fields.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

using Tokens = std::vector<tokenizer::TokenId>;

struct PromptText {
  Tokens tokens;
  std::string text;  // as the client wrote it, without what is before; of token ids, their text
};

// The field `prompt`: a text, a list of token ids (texts may be mixed in), or a list of those.
// `before`: the tokens that the prompts follow and begin with; empty: they begin a text, with BOS
// as the model wants it. Errors: missing, empty, a token outside the vocabulary.
std::vector<PromptText> ReadPrompts(Fields& fields, const tokenizer::Tokenizer& tokenizer,
                                    std::span<const tokenizer::TokenId> before = {});

// OpenAI's array of tools; null: none. Error: a tool without a name.
nlohmann::ordered_json ReadTools(Fields& fields);

// The field chat_template_kwargs, before `variables`; null: neither has any.
nlohmann::ordered_json ReadTemplateVariables(Fields& fields, const report::Record& variables);

// The fields messages, tools, tool_choice, chat_template_kwargs, add_generation_prompt and
// continue_final_message. The caller sets the time. Errors: forms that OpenAI's API does not have;
// errors that only the template can find come from PromptWriter. `variables`: template variables
// that the request does not set.
chat::Conversation ReadConversation(Fields& fields, const report::Record& variables);

nlohmann::ordered_json JsonFrom(const report::Value& value);

}  // namespace winnow::server

#pragma once

#include <string>
#include <string_view>

#include "chat/prompt_writer.h"
#include "server/openai/fields.h"
#include "server/openai/options.h"

// Fields that restrict what an answer may look like.
namespace winnow::server {

// The JSON schema of response_format; empty: any text. Errors: an unknown type; json_object and
// json_schema where no grammars are built in.
std::string ReadResponseFormat(Fields& fields, const ServiceOptions& options);

// A schema that stands in the field `name`. Errors: as above, no object.
std::string SchemaText(Fields& fields, const ServiceOptions& options, std::string_view name,
                       const report::Value& schema);

// tool_choice: "none" takes the tools away. Errors: "required" or a function's name, which no
// build forces yet; a choice without tools.
void ReadToolChoice(Fields& fields, chat::Conversation& conversation);

}  // namespace winnow::server

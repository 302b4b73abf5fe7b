#pragma once

#include "chat/prompt_writer.h"
#include "server/openai/fields.h"
#include "server/openai/options.h"

// Fields that restrict what an answer may look like.
namespace winnow::server {

// response_format, and llama-server's json_schema and grammar. Errors: an unknown type, no schema,
// no text, more than one of them, any of them where no grammars are built in.
ConstraintSpec ReadConstraint(Fields& fields, const ServiceOptions& options);

// tool_choice: "none" takes the tools away, "required" and a function's name make `constraint` a
// call (one, unless parallel_tool_calls is true); otherwise, where there is no other constraint and
// grammars are built in, calls that the model begins (one, if parallel_tool_calls is false).
// Errors: a choice without tools, a function that is none of them, a constraint that is there
// already, a forced call where no grammars are built in. `format`: how the model writes calls.
void ReadToolChoice(Fields& fields, const ServiceOptions& options, chat::ToolFormat format,
                    chat::Conversation& conversation, ConstraintSpec& constraint);

}  // namespace winnow::server

#pragma once

#include "chat/prompt_writer.h"
#include "server/openai/fields.h"
#include "server/openai/options.h"

// Fields that restrict the form of an answer.
namespace winnow::server {

// response_format, and llama-server's json_schema and grammar. Errors: an unknown type, a missing
// schema or text, more than one of them, any of them in a build without grammars.
ConstraintSpec ReadConstraint(Fields& fields, const ServiceOptions& options);

// tool_choice. "none" removes the tools from the conversation. "required" or a function's name sets
// `constraint` to a call (one, unless parallel_tool_calls is true). Otherwise, if there is no other
// constraint and the build has grammars, it restricts the calls that the model begins itself (at
// most one if parallel_tool_calls is false). Errors: a choice without tools, an unknown function, a
// forced call beside another constraint or in a build without grammars. `format`: how the model
// writes calls.
void ReadToolChoice(Fields& fields, const ServiceOptions& options, chat::ToolFormat format,
                    chat::Conversation& conversation, ConstraintSpec& constraint);

}  // namespace winnow::server

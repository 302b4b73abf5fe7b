#pragma once

#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "chat/prompt_writer.h"
#include "flags.h"
#include "runtime/engine.h"
#include "winnow/model.h"

namespace winnow::apps {

// Adds --chat-template, --chat-template-file, --jinja and --no-jinja, as in llama.cpp.
void AddTemplateFlags(FlagTable& table, chat::WriterOptions& options,
                      std::optional<std::string>& file);

// Checks that need no model. Errors: an unknown name, both flags.
Result<void> CheckTemplateFlags(const chat::WriterOptions& options,
                                const std::optional<std::string>& file);

// Makes the template, and reports to the log which one writes the prompts and problems of the
// model's own. Errors: the file cannot be read, or is not a template.
Result<ChatTemplate> MakeTemplate(const chat::WriterOptions& options,
                                  const std::optional<std::string>& file, const Model& model,
                                  Log& log);
// The same for the server.
Result<chat::PromptWriter> MakeWriter(const chat::WriterOptions& options,
                                      const std::optional<std::string>& file,
                                      const runtime::Engine& engine, Log& log);

}  // namespace winnow::apps

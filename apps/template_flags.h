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

// --chat-template, --chat-template-file, --jinja and --no-jinja, as llama.cpp has them.
void AddTemplateFlags(FlagTable& table, chat::WriterOptions& options,
                      std::optional<std::string>& file);

// What can be said before a model is loaded. Errors: an unknown name, both flags.
Result<void> CheckTemplateFlags(const chat::WriterOptions& options,
                                const std::optional<std::string>& file);

// Tells the log what writes the prompts, and what is wrong with the model's template. Errors: the
// file, a template in it that is none.
Result<ChatTemplate> MakeTemplate(const chat::WriterOptions& options,
                                  const std::optional<std::string>& file, const Model& model,
                                  Log& log);
// The same for the server.
Result<chat::PromptWriter> MakeWriter(const chat::WriterOptions& options,
                                      const std::optional<std::string>& file,
                                      const runtime::Engine& engine, Log& log);

}  // namespace winnow::apps

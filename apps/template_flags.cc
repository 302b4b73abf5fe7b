#include "template_flags.h"

#include "text_input.h"
#include "tokenizer/chat_template.h"

namespace winnow::apps {

void AddTemplateFlags(FlagTable& table, chat::WriterOptions& options,
                      std::optional<std::string>& file) {
  std::string names;
  for (const std::string_view name : tokenizer::ChatTemplateNames()) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  table.Add(
      {"--chat-template"}, "NAME",
      "chat template: a built-in format, or a Jinja template; empty: the template in the model's "
      "file. Built-in formats: " +
          names,
      &options.built_in);
  table.Add({"--chat-template-file"}, "FILE", "a Jinja template to use instead of the model's own",
            &file);
  table.Switch({"--jinja"}, "use the model's own template", &options.jinja);
  table.Switch({"--no-jinja"}, "use a built-in format like the model's template", &options.jinja,
               false);
}

Result<void> CheckTemplateFlags(const chat::WriterOptions& options,
                                const std::optional<std::string>& file) {
  const std::string& name = options.built_in;
  if (!name.empty() && file)
    return Error{"give only one of --chat-template and --chat-template-file"};
  if (name.empty() || chat::IsTemplateSource(name)) return {};
  WINNOW_TRY(tokenizer::ChatTemplate::ByName(name));
  return {};
}

namespace {

// Calls `make` with the options and reports its template to the log.
template <class Make>
auto MakeAndLog(chat::WriterOptions options, const std::optional<std::string>& file, Log& log,
                const Make& make) -> decltype(make(options)) {
  if (file) {
    WINNOW_ASSIGN(options.source, ReadTextFile(*file, false, log));
    if (options.source.empty()) return Error{*file + ": the template is empty"};
  }
  auto made = make(options);
  if (!made) return file ? Error{*file + ": " + made.error().message} : made.error();
  for (const std::string& warning : made->warnings()) log.Warning(warning);
  const bool own = options.source.empty() && options.built_in.empty();
  log.Info("chat   " + (made->name() != "jinja" ? std::string(made->name()) + " template"
                        : own                   ? "the model's own template"
                                                : "the template given"));
  return made;
}

}  // namespace

Result<ChatTemplate> MakeTemplate(const chat::WriterOptions& options,
                                  const std::optional<std::string>& file, const Model& model,
                                  Log& log) {
  return MakeAndLog(options, file, log, [&](const chat::WriterOptions& wanted) {
    return model.NewChatTemplate(
        {.name = wanted.built_in, .source = wanted.source, .jinja = wanted.jinja});
  });
}

Result<chat::PromptWriter> MakeWriter(const chat::WriterOptions& options,
                                      const std::optional<std::string>& file,
                                      const runtime::Engine& engine, Log& log) {
  return MakeAndLog(options, file, log, [&](const chat::WriterOptions& wanted) {
    return chat::PromptWriter::Make(engine.file(), engine.tokenizer(), wanted);
  });
}

}  // namespace winnow::apps

#include "run_flags.h"

#include <utility>

namespace winnow::apps {

FlagTable MakeRunTable(RunFlags& flags) {
  FlagTable table(
      "run", "[-m FILE] [-p TEXT | -f FILE] [flags]",
      "Continues a text. The prompt and what follows it go to stdout as they are made, "
      "everything else to stderr. Ctrl-C stops after the current token; exit code 130.");
  table.Group("Text");
  table.Add({"-p", "--prompt"}, "TEXT", "the text to continue", &flags.prompt.text);
  table.Add(
      {"-f", "--file"}, "FILE",
      "read it from a file, '-' for standard input; a final newline is dropped. Without -p and "
      "-f, a pipe is read",
      &flags.prompt.file);
  table.Add({"-n", "--predict", "--n-predict"}, "N",
            "maximum tokens to generate; -1: until the model ends or the context is full",
            &flags.n_predict);
  table.Add({"-r", "--reverse-prompt", "--stop"}, "TEXT", "stop before this text; can be repeated",
            &flags.stop);
  table.Switch({"-e", "--escape"}, "understand \\n, \\t, \\\\, \\xHH and the like in -p and -r",
               &flags.escape);
  table.Switch({"--no-escape"}, "leave backslashes alone", &flags.escape, false);
  AddRawTextFlag(table, flags.prompt);
  table.Switch({"--no-bos"}, "no begin-of-text token, even where the model wants one",
               &flags.add_bos, false);
  table.Group("As one message of a conversation, if any of these is given");
  table.Add({"-sys", "--system-prompt"}, "TEXT", "system prompt", &flags.chat.system);
  table.Add({"-sysf", "--system-prompt-file"}, "FILE", "the same, from a file",
            &flags.chat.system_file);
  table.Add(
      {"--chat-template"}, "NAME",
      "chat template: a built-in format ('winnow chat --help' lists them), or a Jinja template",
      &flags.chat.writer.built_in);
  table.Add({"--chat-template-file"}, "FILE", "a Jinja template from a file",
            &flags.chat.writer_file);
  table.Switch({"--jinja"}, "use the template in the model's file, as with -sys alone",
               &flags.chat.jinja);
  table.Switch({"--no-jinja"}, "use a built-in format like it", &flags.chat.writer.jinja, false);
  table.Group("Output");
  const auto display = [&](const char* name, const char* help, RunFlags::Display value) {
    table.Add({{name}, "", help, "", {}, false, [&flags, value](std::string_view) {
                 flags.display = value;
                 return Result<void>();
               }});
  };
  display("--no-display-prompt", "print only what is generated", RunFlags::Display::kNone);
  display("--display-prompt",
          "print all of the prompt first; without it, only the last lines of a long one that comes "
          "from a file or a pipe",
          RunFlags::Display::kAll);
  table.Add({{"-co", "--color"},
             "",
             "[on|off|auto]: prompt in yellow; auto, as without a value, on a terminal only",
             "off",
             {"on", "off", "auto"},
             false,
             [&flags](std::string_view value) {
               flags.colour = value.empty() ? "auto" : value;
               return Result<void>();
             }});
  table.Switch({"--json"},
               "one JSON object on stdout instead of the text: what was generated, why "
               "it stopped, timings, memory",
               &flags.json);
  table.Switch({"--no-perf"}, "no statistics at the end", &flags.statistics, false);
  table.Switch({"--perf"}, "statistics at the end, on stderr", &flags.statistics);
  AddSessionFlags(table, flags.session,
                  "session file. A new FILE is written once the prompt is read. If FILE exists, a "
                  "prompt that begins with its text continues from there; any other prompt is "
                  "appended. Cache flags that are not given are taken from FILE");
  table.Switch({"--session-all", "--prompt-cache-all"},
               "when the answer ends, the new part of the prompt and the answer are added to FILE",
               &flags.session.all);
  AddModelFlags(table, flags.model);
  AddKvFlags(table, flags.model.kv);
  AddSamplerFlags(table, flags.sampler);
  AddConstraintFlags(table, flags.constraint);
  AddLogFlags(table, flags.model);
  AddForeignFlags(table, flags.notes);
  table.Add({{"-no-cnv", "--no-conversation"}, "", "", "", {}, true, [](std::string_view) {
               return Result<void>();
             }});
  const auto in_chat = [&](FlagTable::Names names, const char* value) {
    table.Add({std::move(names), value, "", "", {}, true, [](std::string_view) {
                 return Result<void>(Error{
                     "run continues a text as it is; conversations, which have it, are 'winnow "
                     "chat' (-st for a single answer)"});
               }});
  };
  in_chat({"-cnv", "--conversation", "-i", "--interactive", "-mli", "--multiline-input"}, "");
  in_chat({"-st", "--single-turn"}, "");
  table.Add({{"--verbose-prompt"}, "", "", "", {}, true, [&flags](std::string_view) {
               flags.notes.emplace_back(
                   "--verbose-prompt has no effect: 'winnow tokenize' shows the tokens of a text");
               return Result<void>();
             }});
  return table;
}

Result<void> CheckRunFlags(const RunFlags& flags) {
  WINNOW_TRY(Validate(flags.model));
  if (flags.n_predict < -1) return Error{"flag -n: expected -1 or more"};
  if (flags.prompt.text && flags.prompt.file) return Error{"give only one of -p and -f"};
  WINNOW_TRY(CheckConstraintFlags(flags.constraint));
  if (flags.chat.system && flags.chat.system_file) {
    return Error{"give only one of -sys and -sysf"};
  }
  return CheckTemplateFlags(flags.chat.writer, flags.chat.writer_file);
}

CommandFiles RunFiles(const RunFlags& flags, const SessionStore& store) {
  CommandFiles files;
  files.UsesModel(flags.model);
  files.Reads("-f", flags.prompt.file);
  files.Reads("-sysf", flags.chat.system_file);
  files.Reads("--chat-template-file", flags.chat.writer_file);
  ReadsConstraintFiles(files, flags.constraint);
  if (store.saves()) {
    files.Writes("--session", flags.session.file);
  } else {
    files.Reads("--session", flags.session.file);
  }
  return files;
}

}  // namespace winnow::apps

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "flags.h"

namespace winnow::apps {

// The exact bytes of a file; "-" is standard input. Errors: cannot be read.
Result<std::string> ReadFile(const std::string& path);

// A text of a file, "-" for standard input. Unless `raw`, \r\n becomes \n: models were trained on
// that, and read a text full of \r as nonsense. The log is told. Errors: cannot be read.
Result<std::string> ReadTextFile(const std::string& path, bool raw, Log& log);

// A text a command works on: TEXT (-p), else FILE (-f), else standard input if it is a pipe.
struct TextSource {
  std::optional<std::string> text;
  std::optional<std::string> file;
  bool raw = false;  // a file's bytes as they are
};
// --raw-text.
void AddRawTextFlag(FlagTable& table, TextSource& source);
// Errors: both given, none given and standard input is a terminal, unreadable file.
Result<std::string> ReadText(const TextSource& source, Log& log);

// Replaces \n \r \t \\ \' \" and \xHH by what they mean; other backslashes stay.
std::string Unescaped(std::string_view text);

// Files end with a newline that nobody meant to be part of the prompt.
std::string WithoutFinalNewline(std::string text);

}  // namespace winnow::apps

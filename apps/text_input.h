#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "flags.h"

namespace winnow::apps {

// The exact bytes of a file; "-" is standard input. Error: it cannot be read.
Result<std::string> ReadFile(const std::string& path);

// A text from a file, or from standard input for "-". Unless `raw`, \r\n becomes \n, with a note in
// the log: models were trained on \n and read a text full of \r as nonsense. Warns of zero bytes.
// Error: it cannot be read.
Result<std::string> ReadTextFile(const std::string& path, bool raw, Log& log);

// The text a command works on: TEXT (-p), else FILE (-f), else standard input if it is a pipe.
struct TextSource {
  std::optional<std::string> text;
  std::optional<std::string> file;
  bool raw = false;  // keep a file's bytes unchanged
};
// --raw-text.
void AddRawTextFlag(FlagTable& table, TextSource& source);
// Errors: both given, none given and standard input is a terminal, unreadable file.
Result<std::string> ReadText(const TextSource& source, Log& log);

// Replaces the escapes \n \r \t \\ \' \" and \xHH; other backslashes stay.
std::string Unescaped(std::string_view text);

// Removes a final newline: files end with one that is not meant to be part of a prompt.
std::string WithoutFinalNewline(std::string text);

}  // namespace winnow::apps

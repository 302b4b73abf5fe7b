#include "text_input.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace winnow::apps {
namespace {

struct Close {
  void operator()(FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<FILE, Close> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file) return Error{path + ": " + std::strerror(errno)};
  struct stat info = {};
  if (fstat(fileno(file.get()), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Error{path + ": is a directory, expected a file"};
  }
  std::string text;
  std::array<char, 1 << 16> buffer;
  size_t n = 0;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0) {
    text.append(buffer.data(), n);
  }
  if (std::ferror(file.get()) != 0) return Error{path + ": " + std::strerror(errno)};
  return text;
}

Result<std::string> ReadTextFile(const std::string& path, bool raw, Log& log) {
  WINNOW_ASSIGN(std::string text, ReadFile(path));
  if (raw) return text;
  const std::string name = path == "-" ? "standard input" : path;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) {
    text.erase(0, kByteOrderMark.size());
    log.Info("text   " + name + " begins with a byte order mark: it is removed");
  }
  if (text.find('\0') != std::string::npos) {
    log.Warning(name + " contains zero bytes and is read as text all the same: is it a PDF or " +
                "another binary file? (pdftotext converts a PDF)");
  }
  if (text.find("\r\n") == std::string::npos) return text;
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') plain += text[i];
  }
  log.Info("text   " + name + " has Windows line endings (\\r\\n), read as \\n");
  return plain;
}

void AddRawTextFlag(FlagTable& table, TextSource& source) {
  table.Switch(
      {"--raw-text"},
      "keep a file's bytes; without it \\r\\n is read as \\n, and a byte order mark is removed",
      &source.raw);
}

Result<std::string> ReadText(const TextSource& source, Log& log) {
  if (source.text && source.file) return Error{"give only one of -p and -f"};
  if (source.text) return *source.text;
  if (source.file) return ReadTextFile(*source.file, source.raw, log);
  if (isatty(STDIN_FILENO) == 1) {
    return Error{"no text: give it with -p TEXT, -f FILE, or through a pipe"};
  }
  return ReadTextFile("-", source.raw, log);
}

std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    switch (c) {
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case '\\':
      case '\'':
      case '"':
        out += c;
        break;
      case 'x': {
        const int high = i + 1 < text.size() ? HexDigit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
        if (high >= 0 && low >= 0) {
          out += static_cast<char>(high * 16 + low);
          i += 2;
          break;
        }
        [[fallthrough]];
      }
      default:
        out += '\\';
        out += c;
    }
  }
  return out;
}

std::string WithoutFinalNewline(std::string text) {
  if (!text.ends_with('\n')) return text;
  text.resize(text.size() - (text.ends_with("\r\n") ? 2 : 1));
  return text;
}

}  // namespace winnow::apps

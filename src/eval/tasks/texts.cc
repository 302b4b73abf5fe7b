#include "eval/tasks/texts.h"

#include <utility>

#include "eval/tasks/builtin_text.h"
#include "eval/tasks/data.h"

namespace winnow::eval {
namespace {

constexpr size_t kPiece = size_t{1} << 18;  // bytes

// Whether the row is a line that --results wrote into the data directory.
bool IsResult(const Row& row) { return row.Has("fingerprint") && row.Has("model_hash"); }

// Replaces \r\n by \n. `held_cr`: whether the text before ended in a \r, which was held back;
// updated for the next text.
std::string WithPlainLineEnds(std::string_view text, bool& held_cr) {
  std::string plain;
  plain.reserve(text.size() + 1);
  for (const char c : text) {
    if (held_cr && c != '\n') plain += '\r';
    held_cr = c == '\r';
    if (!held_cr) plain += c;
  }
  return plain;
}

Result<void> AddLines(const std::string& path, std::vector<TextPlace>& places) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{path + ": cannot be read"};
  std::string line;
  int64_t offset = 0;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const auto n_bytes = static_cast<int64_t>(line.size());
    if (line.find_first_not_of(" \t\r") != std::string::npos) {
      WINNOW_ASSIGN(const Row row, ParseRow(line, FileName(path) + ":" + std::to_string(number)));
      if (!IsResult(row)) {
        WINNOW_TRY(row.Text("text"));
        places.push_back({row.where(), path, offset, n_bytes});
      }
    }
    offset += n_bytes + 1;
  }
  return {};
}

}  // namespace

Result<std::vector<TextPlace>> FindTexts(const std::string& data) {
  std::vector<TextPlace> places;
  if (data == kBuiltin) {
    return std::vector<TextPlace>{{.name = kBuiltin, .path = "", .builtin = true}};
  }
  WINNOW_ASSIGN(const std::vector<std::string> plain, ListFiles(data, ".txt"));
  for (const std::string& path : plain) {
    if (path.ends_with(".jsonl")) continue;  // `data` is one file
    places.push_back({.name = FileName(path), .path = path});
  }
  WINNOW_ASSIGN(const std::vector<std::string> lines, ListFiles(data, ".jsonl"));
  for (const std::string& path : lines) {
    if (path.ends_with(".jsonl")) WINNOW_TRY(AddLines(path, places));
  }
  if (places.empty()) return Missing(data, kTextData);
  return places;
}

Result<std::string> TextReader::ReadLine(const TextPlace& place) {
  std::ifstream file(place.path, std::ios::binary);
  std::string line(static_cast<size_t>(place.n_bytes), '\0');
  file.seekg(place.offset);
  file.read(line.data(), place.n_bytes);
  if (!file) return Error{place.path + ": cannot be read"};
  WINNOW_ASSIGN(const Row row, ParseRow(line, place.name));
  WINNOW_ASSIGN(const std::string text, row.Text("text"));
  bool held_cr = false;
  std::string plain = WithPlainLineEnds(text, held_cr);
  if (held_cr) plain += '\r';
  return plain;
}

Result<std::string> TextReader::ReadPiece(const TextPlace& place) {
  if (!file_.is_open()) {
    file_.open(place.path, std::ios::binary);
    held_cr_ = false;
  }
  std::string piece(kPiece, '\0');
  file_.read(piece.data(), static_cast<std::streamsize>(kPiece));
  if (!file_ && !file_.eof()) return Error{place.path + ": cannot be read"};
  piece.resize(static_cast<size_t>(file_.gcount()));
  std::string plain = WithPlainLineEnds(piece, held_cr_);
  if (!file_.eof()) return plain;
  if (held_cr_) plain += '\r';
  file_ = std::ifstream();
  return plain;
}

Result<std::string> TextReader::Next() {
  while (next_ < places_.size()) {
    const TextPlace& place = places_[next_];
    std::string piece;
    if (place.builtin) {
      piece = BuiltinText();
    } else if (place.n_bytes >= 0) {
      WINNOW_ASSIGN(piece, ReadLine(place));
    } else {
      WINNOW_ASSIGN(piece, ReadPiece(place));
    }
    if (!file_.is_open()) ++next_;
    if (!piece.empty()) return piece;
  }
  return std::string();
}

Result<std::vector<NamedText>> ReadTexts(const std::string& data) {
  WINNOW_ASSIGN(const std::vector<TextPlace> places, FindTexts(data));
  std::vector<NamedText> texts;
  for (const TextPlace& place : places) {
    NamedText& text = texts.emplace_back(NamedText{place.name, ""});
    TextReader reader({place});
    for (;;) {
      WINNOW_ASSIGN(const std::string piece, reader.Next());
      if (piece.empty()) break;
      text.text += piece;
    }
  }
  return texts;
}

}  // namespace winnow::eval

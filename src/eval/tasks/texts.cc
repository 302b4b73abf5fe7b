#include "eval/tasks/texts.h"

#include <utility>

#include "eval/data.h"

namespace winnow::eval {
namespace {

std::string WithPlainLineEnds(const std::string& text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') plain += text[i];
  }
  return plain;
}

// A line that --results wrote into the directory of the data.
bool IsResult(const Row& row) { return row.Has("fingerprint") && row.Has("model_hash"); }

}  // namespace

Result<std::vector<NamedText>> ReadTexts(const std::string& data) {
  std::vector<NamedText> texts;
  WINNOW_ASSIGN(const std::vector<std::string> plain, FilesOf(data, ".txt"));
  for (const std::string& path : plain) {
    if (path.ends_with(".jsonl")) continue;  // --data is one file
    WINNOW_ASSIGN(const std::string text, ReadWhole(path));
    texts.push_back({FileName(path), WithPlainLineEnds(text)});
  }
  WINNOW_ASSIGN(const std::vector<std::string> lines, FilesOf(data, ".jsonl"));
  for (const std::string& path : lines) {
    if (!path.ends_with(".jsonl")) continue;
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(path));
    for (const Row& row : rows) {
      if (IsResult(row)) continue;
      WINNOW_ASSIGN(const std::string text, row.Text("text"));
      texts.push_back({row.where(), WithPlainLineEnds(text)});
    }
  }
  if (texts.empty()) return Missing(data, kTextData);
  return texts;
}

}  // namespace winnow::eval

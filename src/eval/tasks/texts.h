#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/result.h"

namespace winnow::eval {

inline constexpr const char* kTextData =
    "*.txt (a text each, as PG19 has them), or *.jsonl with a field text (as OpenWebText2 has "
    "them); "
    "a directory or one file, or builtin: text that comes with winnow";

// Where a text stands: a whole file, or a line of one.
struct TextPlace {
  std::string name;  // "book.txt", "some.jsonl:12"
  std::string path;
  int64_t offset = 0;    // bytes
  int64_t n_bytes = -1;  // of a line; -1: the whole file
  bool builtin = false;  // BuiltinText(); there is no file
};

// The places of all texts, in the order of their files' names; of "builtin" the text inside.
// Errors: none there, a line without text.
Result<std::vector<TextPlace>> FindTexts(const std::string& data);

// Texts one after another, in pieces, so that none need be held whole. Line ends become \n.
class TextReader {
 public:
  explicit TextReader(std::vector<TextPlace> places) : places_(std::move(places)) {}
  // Never empty before the end of the last text. Error: the disk.
  Result<std::string> Next();

 private:
  Result<std::string> ReadLine(const TextPlace& place);
  Result<std::string> ReadPiece(const TextPlace& place);

  std::vector<TextPlace> places_;
  size_t next_ = 0;       // the place that is read
  std::ifstream file_;    // open while a whole file is read
  bool held_cr_ = false;  // a piece ended in \r
};

struct NamedText {
  std::string name;
  std::string text;
};

// All texts, whole.
Result<std::vector<NamedText>> ReadTexts(const std::string& data);

}  // namespace winnow::eval

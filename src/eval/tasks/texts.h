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

// The location of a text: a whole file, or a line of one.
struct TextPlace {
  std::string name;  // "book.txt", "some.jsonl:12"
  std::string path;
  int64_t offset = 0;    // bytes
  int64_t n_bytes = -1;  // of a line; -1: the whole file
  bool builtin = false;  // BuiltinText(); there is no file
};

// The locations of all texts, in the order of their files' names; of "builtin", the built-in text.
// Errors: none found, a line without text.
Result<std::vector<TextPlace>> FindTexts(const std::string& data);

// Reads texts one after the other, in pieces, so that none is held whole. Line ends become \n.
class TextReader {
 public:
  explicit TextReader(std::vector<TextPlace> places) : places_(std::move(places)) {}
  // The next piece; empty only at the end of the last text. Error: the disk.
  Result<std::string> Next();

 private:
  Result<std::string> ReadLine(const TextPlace& place);
  Result<std::string> ReadPiece(const TextPlace& place);

  std::vector<TextPlace> places_;
  size_t next_ = 0;       // index of the place that is read
  std::ifstream file_;    // open while a whole file is read
  bool held_cr_ = false;  // the last piece ended in a \r, which was held back
};

struct NamedText {
  std::string name;
  std::string text;
};

// All texts, whole.
Result<std::vector<NamedText>> ReadTexts(const std::string& data);

}  // namespace winnow::eval

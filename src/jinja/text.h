#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow::jinja {

// Bytes, usually UTF-8, that keep track of their origin: the template (trusted) or others. Slicing
// and joining preserve the origin of every byte.
class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool is_ascii() const { return ascii_; }

  // Whether every byte is trusted; true for an empty text.
  bool trusted() const { return runs_.empty() || (runs_.size() == 1 && runs_[0].trusted); }
  bool TrustedAt(size_t byte) const;

  void Append(std::string_view bytes, bool trusted);
  void Append(const Text& text) { AppendSlice(text, 0, text.size()); }
  // Appends bytes [begin, end) of another text.
  void AppendSlice(const Text& text, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;
  void Clear();

  // Runs of bytes with the same trust, in order; neighbors differ.
  struct Run {
    size_t begin = 0;
    bool trusted = false;
  };
  const std::vector<Run>& runs() const { return runs_; }

 private:
  // The run that contains this byte.
  size_t RunIndex(size_t byte) const;

  std::string bytes_;
  std::vector<Run> runs_;  // each ends where the next one begins
  bool ascii_ = true;
};

}  // namespace winnow::jinja

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::runtime {

// Watches a stream of text for stop strings. Text that might be the beginning of one is held back
// until it is decided, also across pieces; neither a stop string nor what follows it is given out.
class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // Text that can be shown after this piece. Once stopped() holds, nothing more comes out.
  std::string Push(std::string_view piece);
  // The end of the stream: what was held back.
  std::string Finish();
  bool stopped() const { return stopped_; }
  // The stop string that was found; empty before.
  const std::string& stopping_word() const { return stopping_word_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
  std::string stopping_word_;
};

}  // namespace winnow::runtime

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::runtime {

// Watches a stream of text for stop strings. Text that may be the beginning of one is held back
// until that is decided, also across pieces. Neither a stop string nor the text after it is output.
class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // Returns the text that is final after this piece. Once stopped() holds, nothing more comes out.
  std::string Push(std::string_view piece);
  // Ends the stream and returns the text that was held back.
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

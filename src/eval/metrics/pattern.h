#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::eval {

// A regular expression over UTF-8 text, with the meaning it has in Python's `re`: \d, \w and \b
// cover all of Unicode. The published scoring rules are such expressions.
class Pattern {
 public:
  // Requires: `expression` compiles (all of them are in the source).
  explicit Pattern(std::string_view expression);

  // Finds the first match and gives its group `group`, empty if the group did not take part. False
  // if nothing matches.
  bool Find(std::string_view text, std::string* found, int group = 0) const;
  // All non-overlapping matches, in order.
  std::vector<std::string> FindAll(std::string_view text, int group = 0) const;
  // Replaces every match; "$1" stands for the first group, "\\L$0" for the match in lower case.
  std::string Replace(std::string_view text, std::string_view replacement) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace winnow::eval

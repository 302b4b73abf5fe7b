#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::report {

struct Figure;

// Assigns a style number to each series name, the same in all figures that share the palette.
// Series of one group share a colour and differ in their dashes.
class Palette {
 public:
  static constexpr size_t kColours = 12;

  // Adds all series of a figure, in the order they first appear.
  void Add(const Figure& figure);
  // The style number of a series, for SeriesClass (draw.h). Requires: a figure with a series of
  // that name was added.
  size_t StyleNumber(std::string_view name) const;

 private:
  void Add(const std::string& name, const std::string& group);

  struct Group {
    std::string name;
    std::vector<std::string> series;
  };
  std::vector<Group> groups_;
};

}  // namespace winnow::report

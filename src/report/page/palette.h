#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::report {

struct Figure;

// What series look like: a number for each name, the same in all figures that share the palette.
// Series of one group have one colour and differ in their dashes.
class Palette {
 public:
  static constexpr size_t kColours = 12;

  // All series of a figure, in the order they first appear.
  void Add(const Figure& figure);
  // See SeriesClass (draw.h). Requires: the figure of that name was added.
  size_t CodePoint(std::string_view name) const;

 private:
  void Add(const std::string& name, const std::string& group);

  struct Group {
    std::string name;
    std::vector<std::string> series;
  };
  std::vector<Group> groups_;
};

}  // namespace winnow::report

#include "report/page/palette.h"

#include <algorithm>

#include "base/check.h"
#include "report/page/chart.h"

namespace winnow::report {

void Palette::Add(const Figure& figure) {
  for (const Figure::Panel& panel : figure.panels) {
    if (const auto* lines = std::get_if<LineChart>(&panel.chart)) {
      for (const LineChart::Series& series : lines->series) Add(series.name, series.group);
    } else if (const auto* bars = std::get_if<BarChart>(&panel.chart)) {
      for (const BarChart::Series& series : bars->series) Add(series.name, series.group);
    }
  }
}

void Palette::Add(const std::string& name, const std::string& group) {
  const std::string& key = group.empty() ? name : group;
  auto found = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& each) { return each.name == key; });
  if (found == groups_.end()) found = groups_.insert(groups_.end(), Group{key, {}});
  if (std::find(found->series.begin(), found->series.end(), name) == found->series.end()) {
    found->series.push_back(name);
  }
}

size_t Palette::StyleNumber(std::string_view name) const {
  for (size_t group = 0; group < groups_.size(); ++group) {
    const std::vector<std::string>& series = groups_[group].series;
    const auto found = std::find(series.begin(), series.end(), name);
    if (found == series.end()) continue;
    const auto place = static_cast<size_t>(found - series.begin());
    return group % kColours + kColours * (group / kColours + place);
  }
  WINNOW_CHECK(false);
  return 0;
}

}  // namespace winnow::report

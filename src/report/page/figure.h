#pragma once

#include <string>
#include <vector>

#include "report/page/chart.h"
#include "report/page/draw.h"
#include "report/page/palette.h"

namespace winnow::report {

// Names of all series of a figure, in the order they first appear.
std::vector<std::string> SeriesNames(const Figure& figure);

// The figure with axes and colours of all panels over the same ranges.
Figure WithSharedRanges(Figure figure);

// The whole figure, panels side by side as far as `width` allows.
Drawing DrawFigure(const Figure& figure, double width, const Palette& palette);

// The <figure> of a page: drawn for wide and for narrow columns (the page's style shows the one
// that fits), with the numbers the script needs.
std::string FigureHtml(const Figure& figure, const Palette& palette);

// Like ToSvg (page.h), in the colours of a page.
std::string ToSvg(const Figure& figure, const Palette& palette);

}  // namespace winnow::report

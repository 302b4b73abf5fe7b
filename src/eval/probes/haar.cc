#include "eval/probes/haar.h"

#include "base/check.h"

namespace winnow::eval {
namespace {

// Replaces every row by the mean of its block of `length` rows.
std::vector<double> BlockMeans(std::span<const double> signal, int64_t width, int64_t length) {
  const int64_t n = static_cast<int64_t>(signal.size()) / width;
  std::vector<double> means(signal.size());
  for (int64_t first = 0; first < n; first += length) {
    for (int64_t column = 0; column < width; ++column) {
      double sum = 0;
      for (int64_t row = first; row < first + length; ++row) {
        sum += signal[static_cast<size_t>(row * width + column)];
      }
      for (int64_t row = first; row < first + length; ++row) {
        means[static_cast<size_t>(row * width + column)] = sum / static_cast<double>(length);
      }
    }
  }
  return means;
}

}  // namespace

std::vector<double> HaarDetail(std::span<const double> signal, int64_t width, int level) {
  const int64_t length = int64_t{1} << level;
  WINNOW_CHECK(level >= 1 && width > 0);
  WINNOW_CHECK(static_cast<int64_t>(signal.size()) % (width * length) == 0);
  std::vector<double> detail = BlockMeans(signal, width, length / 2);
  const std::vector<double> coarser = BlockMeans(signal, width, length);
  for (size_t i = 0; i < detail.size(); ++i) detail[i] -= coarser[i];
  return detail;
}

}  // namespace winnow::eval

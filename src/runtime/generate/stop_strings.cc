#include "runtime/generate/stop_strings.h"

#include <algorithm>
#include <utility>

namespace winnow::runtime {
namespace {

// Length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t Overlap(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::Push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t first_stop = std::string::npos;
  size_t n_undecided = 0;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found < first_stop) {
      first_stop = found;
      stopping_word_ = stop;
    }
    n_undecided = std::max(n_undecided, Overlap(held_, stop));
  }
  if (first_stop != std::string::npos) {
    stopped_ = true;
    held_.resize(first_stop);
    return std::exchange(held_, {});
  }
  std::string decided = held_.substr(0, held_.size() - n_undecided);
  held_.erase(0, decided.size());
  return decided;
}

std::string StopStrings::Finish() { return std::exchange(held_, {}); }

}  // namespace winnow::runtime

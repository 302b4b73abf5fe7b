#include "eval/tasks/codes.h"

#include <iterator>
#include <string_view>

namespace winnow::eval {
namespace {

constexpr std::string_view kAdjectives[] = {
    "red",   "black", "white", "blue",  "green", "dark",   "bright", "old",     "new",     "young",
    "great", "small", "large", "long",  "short", "golden", "silver", "wooden",  "broken",  "empty",
    "heavy", "cold",  "warm",  "quiet", "happy", "wild",   "gentle", "ancient", "foreign", "royal"};
constexpr std::string_view kNouns[] = {
    "lantern", "house",  "door",   "horse",   "table",   "letter", "window",  "garden",
    "river",   "bridge", "castle", "tower",   "ship",    "boat",   "church",  "book",
    "box",     "ring",   "sword",  "bell",    "clock",   "coat",   "bottle",  "lamp",
    "candle",  "forest", "island", "harbour", "village", "street", "kitchen", "whale"};

}  // namespace

HiddenCode DrawCode(Rng& rng, std::set<std::string>& things) {
  for (;;) {
    std::string thing = std::string(kAdjectives[rng.Below(std::size(kAdjectives))]) + " " +
                        std::string(kNouns[rng.Below(std::size(kNouns))]);
    if (!things.insert(thing).second) continue;
    return {std::move(thing), std::to_string(10000 + rng.Below(90000))};
  }
}

}  // namespace winnow::eval

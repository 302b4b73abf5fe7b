#pragma once

#include <set>
#include <string>

#include "base/rng.h"

namespace winnow::eval {

// A fact that can be hidden in a text and asked for: "The secret code of the red lantern is 48213."
struct HiddenCode {
  std::string thing, code;

  std::string Statement() const { return "The secret code of the " + thing + " is " + code + "."; }
  std::string Question() const { return "What is the secret code of the " + thing + "?"; }
};

// Draws a thing that is not yet in `things`, adds it there, and gives it a code of five digits.
// Requires: fewer than 900 things.
HiddenCode DrawCode(Rng& rng, std::set<std::string>& things);

}  // namespace winnow::eval

#pragma once

#include <string>
#include <string_view>

namespace winnow::eval {

// Writes out a method's spec with the values of all parameters, including those not given:
// "snapkv:window=16" -> "snapkv:window=16,pool=max,kernel=7,...". Parts of `custom` stay as given.
// For "A, then B", both are written out. Requires: MakeMethod accepts the spec.
std::string NormalizeConfiguration(std::string_view spec);

}  // namespace winnow::eval

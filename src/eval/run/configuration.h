#pragma once

#include <string>
#include <string_view>

namespace winnow::eval {

// A method's spec with all its parameters and their values, those not given too: "snapkv:window=16"
// -> "snapkv:window=16,pool=max,kernel=7,...". Parts of `custom` stay as they are given. Of two
// methods, "A, then B", both. Requires: MakeMethod took the spec.
std::string NormalizeConfiguration(std::string_view spec);

}  // namespace winnow::eval

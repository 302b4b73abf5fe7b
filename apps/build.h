#pragma once

#include <string>

namespace winnow::apps {

// "0.1.0+e664c7b", with "-dirty" if files differed from the commit; "0.1.0" if it was not built in
// a checkout.
std::string BuildVersion();

}  // namespace winnow::apps

#pragma once

#include <span>

#include "server/page/page.h"

// The files beside this header that browsers get, which CMakeLists.txt puts into the library.
namespace winnow::server::page {

std::span<const File> Files();

}  // namespace winnow::server::page

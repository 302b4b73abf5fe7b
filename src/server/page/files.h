#pragma once

#include <span>

#include "server/page/page.h"

// The files beside this header that browsers load. CMakeLists.txt embeds them in the library.
namespace winnow::server::page {

std::span<const File> Files();

}  // namespace winnow::server::page

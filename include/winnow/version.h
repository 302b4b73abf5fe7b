#pragma once

// Until 1.0 a new minor version may change the API, and says so in CHANGELOG.md; a new patch
// version only adds to it. There is no promise of a stable ABI: build what uses winnow against the
// version it links. Session files carry a version of their own, and another one is refused by name.
//
// Kept equal to the project's version in CMakeLists.txt (tests/install checks it).
#define WINNOW_VERSION_MAJOR 0
#define WINNOW_VERSION_MINOR 1
#define WINNOW_VERSION_PATCH 0
#define WINNOW_VERSION "0.1.0"

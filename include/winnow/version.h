#pragma once

// Until 1.0 a new minor version may change the API; CHANGELOG.md then says so. A new patch version
// only adds to the API. The ABI is not stable: build programs against the version they link.
// Session files have their own version; winnow rejects a file of another version and names both.
//
// WINNOW_VERSION is kept equal to the project's version in CMakeLists.txt (tests/install checks
// it).
#define WINNOW_VERSION_MAJOR 0
#define WINNOW_VERSION_MINOR 1
#define WINNOW_VERSION_PATCH 0
#define WINNOW_VERSION "0.1.0"

#pragma once

// Kept equal to the project's version in CMakeLists.txt (tests/install checks it).
#define WINNOW_VERSION_MAJOR 0
#define WINNOW_VERSION_MINOR 1
#define WINNOW_VERSION_PATCH 0
#define WINNOW_VERSION "0.1.0"

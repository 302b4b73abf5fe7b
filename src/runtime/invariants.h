#pragma once

#include "base/check.h"

// What the numbers of the memory plan promise about every step of every sequence. Checked in all
// builds with tests, the release build among them: a few comparisons a layer.
#ifdef WINNOW_INVARIANTS
#define WINNOW_INVARIANT(condition) WINNOW_CHECK(condition)
inline constexpr bool kChecksInvariants = true;
#else
#define WINNOW_INVARIANT(condition) ((void)0)
inline constexpr bool kChecksInvariants = false;
#endif

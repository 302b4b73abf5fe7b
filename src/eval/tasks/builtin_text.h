#pragma once

#include <cstddef>
#include <string>

#include "base/rng.h"

// Data that needs no download: --data builtin.
namespace winnow::eval {

inline constexpr const char* kBuiltin = "builtin";

// Plain English prose of at least n_bytes, in paragraphs, assembled from sentences written for this
// purpose: no model was trained on it. Every `rng` gives another text. It states no codes, keys or
// numbers that a question could ask for.
std::string FakeProse(Rng& rng, size_t n_bytes);

// The text that text tasks read with --data builtin: the same 256 KiB each time.
const std::string& BuiltinText();

}  // namespace winnow::eval

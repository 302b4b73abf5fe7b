#pragma once

#include <cstddef>
#include <string>

#include "base/rng.h"

// Data that needs no download: --data builtin.
namespace winnow::eval {

inline constexpr const char* kBuiltin = "builtin";

// Plain English prose of at least n_bytes, in paragraphs: the chronicle of a small town, put
// together from sentences written for this purpose. No model has read it, and every `rng` gives
// another one. It says nothing of codes, keys or numbers that a question could ask for.
std::string FakeProse(Rng& rng, size_t n_bytes);

// The text that tasks on texts read under --data builtin: the same 256 KiB each time.
const std::string& BuiltinText();

}  // namespace winnow::eval

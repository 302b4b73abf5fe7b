#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace winnow::gguf::testing {

// Strings of 16 printable ASCII characters without spaces whose std::hash is the same in libstdc++
// (64-bit). A file can hold them as keys, names and parts of merges.
std::vector<std::string> CollidingStrings(size_t n);

// Strings like these without collisions.
std::vector<std::string> OrdinaryStrings(size_t n);

// Processor time of `work`, in seconds: the least of three runs.
double ProcessorSeconds(const std::function<void()>& work);

}  // namespace winnow::gguf::testing

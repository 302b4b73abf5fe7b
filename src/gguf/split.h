#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/container.h"
#include "gguf/file.h"

namespace winnow::gguf {

// A model in several files, NAME-00001-of-00005.gguf and so on; the first holds the metadata.
struct SplitPlan {
  std::vector<std::string> paths;  // parts 2..count; empty for an ordinary file
  int64_t count = 1;
  std::optional<uint64_t> n_tensors;
};

// Errors: a later part was given (names the first), the file name does not follow the pattern, bad
// counts.
Result<SplitPlan> PlanSplits(const File& first, const std::string& path);

// Error: `part` does not say it is number `index` (from 0) of `count`. `path` names it.
Result<void> CheckSplit(const Container& part, int64_t index, int64_t count,
                        const std::string& path);

}  // namespace winnow::gguf

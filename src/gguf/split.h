#pragma once

#include <optional>
#include <string>

namespace winnow::gguf {

// A file's place among the parts of a split model, from its name: DIR/MODEL-00002-of-00005.gguf.
struct SplitName {
  std::string stem;  // DIR/MODEL
  int number = 1;    // from 1
  int count = 1;

  // The path of another part; `other` counts from 1.
  std::string ShardPath(int other) const;
};

// Nothing if `path` is not named like a part of a split model.
std::optional<SplitName> ParseSplitName(const std::string& path);

}  // namespace winnow::gguf

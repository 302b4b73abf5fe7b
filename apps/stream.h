#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "load.h"
#include "options.h"

namespace winnow::apps {

// perplexity --stream: a text of any length in one pass.
struct StreamFlags {
  bool enabled = false;
  int64_t every = 1000;
};
void AddStreamFlags(FlagTable& table, StreamFlags& flags);

// Warning for a text read token by token under a method that compresses only prompts; nothing for
// other methods.
std::optional<std::string> NothingEvictedWarning(const runtime::CompressionOptions& options);

// Warning for a perplexity above the vocabulary size, which is worse than guessing; else nothing.
std::optional<std::string> PerplexityWarning(double perplexity, int64_t vocabulary);

struct StreamTask {
  LoadedModel& loaded;
  const std::vector<Token>& tokens;
  const StreamFlags& flags;
  const KvFlags& kv;
  bool json = false;
};
// Scores the tokens and prints the progress. Returns the exit code.
int StreamPerplexity(const StreamTask& task, ConsoleLog& log);

}  // namespace winnow::apps

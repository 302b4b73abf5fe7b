// Speed and memory at chosen lengths of prompt and answer.
#include <string>

#include "base/rng.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"
#include "eval/workloads/timing.h"

namespace winnow::eval {
namespace {

constexpr int64_t kRuns = 5;  // [HBW-KV Table 4]
// [D2O Table 3]
constexpr GridCell kGrid[] = {{256, 1024}, {512, 2048}, {1024, 4096}, {2048, 8192}};

// Any tokens will do: speed depends on their number.
std::vector<TokenId> SomeTokens(const tokenizer::Tokenizer& tokenizer, int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  while (static_cast<int64_t>(tokens.size()) < n) {
    const auto token =
        static_cast<TokenId>(rng.Below(static_cast<uint64_t>(tokenizer.vocabulary_size())));
    if (tokenizer.Kind(token) == tokenizer::TokenKind::kNormal) tokens.push_back(token);
  }
  return tokens;
}

std::vector<GridCell> MakeGrid(const TaskContext& context) {
  if (!context.options.grid.empty()) return context.options.grid;
  std::vector<GridCell> grid;
  for (const GridCell& cell : kGrid) {
    if (cell.n_prompt + cell.n_generate <= context.context) grid.push_back(cell);
  }
  if (grid.empty()) grid.push_back({context.context / 4, context.context / 2});
  return grid;
}

Result<std::vector<Sample>> Samples(const TaskContext& context) {
  const TaskOptions& options = context.options;
  if (options.runs == 0) return Error{"--runs: expected 1 or more"};
  std::vector<Sample> samples;
  for (const GridCell& cell : MakeGrid(context)) {
    const std::string group = std::to_string(cell.n_prompt) + "+" + std::to_string(cell.n_generate);
    for (int64_t run = 0; run < Or(options.runs, kRuns); ++run) {
      samples.push_back({.id = group + "/" + std::to_string(run),
                         .group = group,
                         .labels = {{"prompt", cell.n_prompt}, {"generated", cell.n_generate}},
                         .make = [&context, cell, run]() -> Result<std::unique_ptr<Workload>> {
                           Timing timing;
                           timing.prompt =
                               SomeTokens(context.tokenizer, cell.n_prompt, context.options.seed);
                           timing.n_generate = cell.n_generate;
                           timing.memory_limit = Or(context.options.memory_limit, 0);
                           timing.run = run;
                           return MakeWorkload(std::move(timing));
                         }});
    }
  }
  return samples;
}

}  // namespace

Task ThroughputTask() {
  using Kind = Column::Kind;
  return {
      .name = "throughput",
      .summary =
          "time of reading and generating, with the largest batch of sequences that a memory "
          "limit holds",
      .data = "nothing",
      .repeats = "D2O Tables 3 and 8, EMS Table 3, HBW-KV Table 4",
      .flags = {"--grid", "--runs", "--memory-limit"},
      .columns =
          {{.name = "tokens_per_second", .title = "tokens/s", .kind = Kind::kSpread},
           {.name = "decode_tokens_per_second", .title = "decode tokens/s", .kind = Kind::kSpread},
           {.name = "step_ms", .title = "ms a step", .kind = Kind::kSpread, .relative = false},
           {.name = "prefill_s",
            .title = "prefill s",
            .kind = Kind::kSpread,
            .digits = 3,
            .relative = false},
           {.name = "total_s",
            .title = "total s",
            .kind = Kind::kSpread,
            .digits = 3,
            .relative = false},
           {.name = "cache_mib", .title = "cache MiB", .kind = Kind::kMean, .relative = false},
           {.name = "sequences",
            .title = "sequences",
            .kind = Kind::kMean,
            .digits = 0,
            .relative = false}},
      .averages_groups = false,
      .samples = Samples};
}

}  // namespace winnow::eval

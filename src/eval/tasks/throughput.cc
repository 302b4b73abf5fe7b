// Speed and memory at given lengths of prompt and answer.
#include <string>

#include "base/rng.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"
#include "eval/workloads/timing.h"

namespace winnow::eval {
namespace {

struct GridCell {
  int64_t n_prompt = 0;
  int64_t n_generate = 0;
};

constexpr int64_t kMaxRuns = 10'000;
// [D2O Table 3]
constexpr GridCell kGrid[] = {{256, 1024}, {512, 2048}, {1024, 4096}, {2048, 8192}};

Result<std::vector<GridCell>> ParseGrid(std::string_view text) {
  WINNOW_ASSIGN(const std::vector<std::string> words, ParseWords(text));
  std::vector<GridCell> grid;
  for (const std::string& word : words) {
    const size_t plus = word.find('+');
    const auto n_prompt = ParsePositive(word.substr(0, plus));
    const auto n_generate = ParsePositive(plus == std::string::npos ? "" : word.substr(plus + 1));
    if (!n_prompt || !n_generate) {
      return Error{"'" + word + "': expected PROMPT+GENERATED, such as 256+1024"};
    }
    grid.push_back({*n_prompt, *n_generate});
  }
  return grid;
}

struct ThroughputOptions {
  uint64_t seed = 0;
  std::vector<GridCell> grid;  // none: the cells of kGrid that fit into the context
  int64_t runs = 5;            // [HBW-KV Table 4]
  int64_t memory_limit = 0;    // bytes; 0: one sequence
};

template <class Visitor>
void Visit(ThroughputOptions& o, Visitor& v) {
  VisitSeed(o.seed, v);
  v("grid", o.grid, "LIST", "lengths of prompt and answer, such as 256+1024,512+2048", ParseGrid);
  v("runs", o.runs, "N", "measurements of each pair of lengths [5]", ParsePositive);
  v("memory_limit", o.memory_limit, "BYTES",
    "run the largest batch that model, buffers and caches fit in", ParseBytes);
}

// Any tokens will do: speed depends only on their number.
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

std::vector<GridCell> MakeGrid(const TaskContext& context, const std::vector<GridCell>& given) {
  if (!given.empty()) return given;
  std::vector<GridCell> grid;
  for (const GridCell& cell : kGrid) {
    if (cell.n_prompt + cell.n_generate <= context.context) grid.push_back(cell);
  }
  if (grid.empty()) grid.push_back({context.context / 4, context.context / 2});
  return grid;
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const ThroughputOptions& options) {
  if (options.runs > kMaxRuns) {
    return OptionError(context, "runs", "expected 1 to " + std::to_string(kMaxRuns));
  }
  for (const GridCell& cell : options.grid) {
    if (cell.n_prompt <= context.context) continue;
    return OptionError(context, "grid",
                       "a prompt of " + std::to_string(cell.n_prompt) +
                           " tokens, the context holds " + std::to_string(context.context));
  }
  std::vector<Sample> samples;
  for (const GridCell& cell : MakeGrid(context, options.grid)) {
    const std::string group = std::to_string(cell.n_prompt) + "+" + std::to_string(cell.n_generate);
    for (int64_t run = 0; run < options.runs; ++run) {
      samples.push_back(
          {.id = group + "/" + std::to_string(run),
           .group = group,
           .labels = {{"prompt", cell.n_prompt}, {"generated", cell.n_generate}},
           .make = [&context, &options, cell, run]() -> Result<std::unique_ptr<Workload>> {
             Timing timing;
             timing.prompt = SomeTokens(context.tokenizer, cell.n_prompt, options.seed);
             timing.n_generate = cell.n_generate;
             timing.memory_limit = options.memory_limit;
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
  return WithOptions<ThroughputOptions>(
      {.name = "throughput",
       .summary =
           "time of reading and generating, with the largest batch of sequences that a memory "
           "limit holds",
       .data = "nothing",
       .repeats = "D2O Tables 3 and 8, EMS Table 3, HBW-KV Table 4",
       .columns =
           {{.name = "tokens_per_second", .title = "tokens/s", .kind = Kind::kSpread},
            {.name = "decode_tokens_per_second", .title = "decode tokens/s", .kind = Kind::kSpread},
            {.name = "step_ms", .title = "ms/step", .kind = Kind::kSpread, .relative = false},
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
       .averages_groups = false},
      Samples, [](const ThroughputOptions& options, TaskRun& run) {
        run.limits_memory = options.memory_limit > 0;
      });
}

}  // namespace winnow::eval

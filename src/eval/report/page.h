#pragma once

#include "eval/run/runner.h"
#include "report/page/page.h"

namespace winnow::eval {

// The results of a task to look at: the table, quality against bytes, parts of a benchmark as bars,
// grids of length and depth as heat maps, curves of streams, decoding speed where there are several
// lengths. `human_bytes` writes sizes.
report::Page MakePage(const EvalResults& results, std::string (*human_bytes)(int64_t bytes));

}  // namespace winnow::eval

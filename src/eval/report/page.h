#pragma once

#include "eval/run/runner.h"
#include "report/page/page.h"

namespace winnow::eval {

// A page with the results of a task: the table, quality against bytes, parts of a benchmark as
// bars, grids of length and depth as heat maps, curves of streams, and decode speed if there are
// several lengths. `human_bytes` formats sizes.
report::Page MakePage(const EvalResults& results, std::string (*human_bytes)(int64_t bytes));

}  // namespace winnow::eval

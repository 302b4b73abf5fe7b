#pragma once

#include <string>
#include <vector>

#include "report/page/token_map.h"
#include "report/record.h"

namespace winnow::report {

// The <figure> of a page. Without a script it shows the first view, all layers and heads; the
// script lets the reader choose.
std::string TokenMapHtml(const TokenMap& map);

// The view's evicted_at as nested lists: [layer][kv_head][token].
Value EvictionData(const TokenMap::View& view);

// All views with their states as runs: [{"name", "states": [layer][kv_head], "evicted_at"}].
Value StateData(const TokenMap& map);

// A row per token: the shares that kept and merged it in each view.
std::vector<Record> DataRecords(const TokenMap& map);

}  // namespace winnow::report

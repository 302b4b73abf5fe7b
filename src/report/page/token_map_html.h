#pragma once

#include <string>
#include <vector>

#include "report/page/token_map.h"
#include "report/record.h"

namespace winnow::report {

// The <figure> of a page: without a script the first view, all layers and heads; with one any.
std::string TokenMapHtml(const TokenMap& map);

// [layer][kv_head][token]
Value EvictionData(const TokenMap::View& view);

// All views with their states as runs: [{"name", "states": [layer][kv_head], "evicted_at"}].
Value StateData(const TokenMap& map);

// A row per token: what is left of it in each view.
std::vector<Record> DataRecords(const TokenMap& map);

}  // namespace winnow::report

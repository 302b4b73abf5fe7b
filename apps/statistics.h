#pragma once

#include <cstdint>
#include <string>

#include "report/record.h"
#include "runtime/generate.h"
#include "runtime/session.h"

namespace winnow::apps {

// What a person wants to know after a generation, for stderr.
std::string StatisticsText(const runtime::Generated& generated, const runtime::Session& session,
                           double load_ms);

// What `run --json` prints.
report::Record StatisticsRecord(const runtime::Generated& generated,
                                const runtime::Session& session, double load_ms);

}  // namespace winnow::apps

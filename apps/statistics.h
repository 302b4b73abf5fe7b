#pragma once

#include <cstdint>
#include <string>

#include "report/record.h"
#include "runtime/generate.h"
#include "runtime/session.h"

namespace winnow::apps {

// "12.0 MiB (12.2 MiB with lists) of 98.0 MiB in f16".
std::string CacheSizeText(const runtime::Session& session);

// What a person wants to know after a generation, for stderr.
std::string StatisticsText(const runtime::Generated& generated, const runtime::Session& session,
                           double load_ms);

// What `run --json` prints.
report::Record StatisticsRecord(const runtime::Generated& generated,
                                const runtime::Session& session, double load_ms);

}  // namespace winnow::apps

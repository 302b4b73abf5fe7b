#pragma once

#include <cstdint>
#include <string>

#include "report/record.h"
#include "winnow/session.h"

namespace winnow::apps {

// "12.0 MiB (12.2 MiB with lists) of 98.0 MiB in f16".
std::string CacheSizeText(const Session& session);
// ", KL divergence about 0.0031 +- 0.0008 nats per token (132 compared, 99 % below 0.02)"; empty if
// no budget was searched.
std::string QualityText(const Session& session);

// Statistics of a generation, for stderr.
std::string StatisticsText(const Generation& generated, const Session& session, double load_ms);

// The JSON of `run --json`.
report::Record StatisticsRecord(const Generation& generated, const Session& session,
                                double load_ms);

}  // namespace winnow::apps

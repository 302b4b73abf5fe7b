#pragma once

#include "eval/probes/probe.h"

namespace winnow::apps {

// What a probe found, on standard output: its numbers and tables, shortened for a terminal.
void PrintFindings(const eval::Probe& probe, const eval::Findings& findings);

}  // namespace winnow::apps

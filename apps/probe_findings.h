#pragma once

#include "eval/probes/probe.h"

namespace winnow::apps {

// Prints a probe's numbers and tables to standard output, shortened for a terminal.
void PrintFindings(const eval::Probe& probe, const eval::Findings& findings);

}  // namespace winnow::apps

#pragma once

#include <string>

#include "report/record.h"

// The machine that produced a result.
namespace winnow::eval {

// Processor, cores, system and instruction set.
report::Record MachineRecord(const std::string& cpu_target);

}  // namespace winnow::eval

#pragma once

#include <string>

#include "report/record.h"

// Where a result comes from.
namespace winnow::eval {

// Processor, cores, system and instruction set.
report::Record MachineRecord(const std::string& cpu_target);

}  // namespace winnow::eval

#pragma once

#include <cstdint>
#include <string>

// What this process takes of the machine, and which machine it is.
namespace winnow {

// The most memory this process ever had resident, mapped files included, in bytes; 0 where the
// system does not tell.
int64_t PeakResidentBytes();

// What it has resident now; 0 where the system does not tell (only Linux does).
int64_t ResidentBytes();

// What it may still take without swapping or being killed: what the kernel calls available, or what
// its control groups (version 2) leave, whichever is less. Pages of files that can be dropped are
// available. 0 where the system does not tell (only Linux does). `root`: where /proc and /sys are.
int64_t AvailableMemoryBytes(const std::string& root = "");

// "Intel(R) Xeon(R) Processor"; empty where the system does not tell (only Linux does).
std::string CpuName();

}  // namespace winnow

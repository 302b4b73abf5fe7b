#pragma once

#include <cstdint>
#include <string>

// The memory this process uses and may use, and the CPU's name.
namespace winnow {

// Peak resident memory of this process, mapped files included, in bytes; 0 if unknown.
int64_t PeakResidentBytes();

// Resident memory now, in bytes; 0 if unknown (known on Linux only).
int64_t ResidentBytes();

// Bytes that the process can still allocate without swapping or being killed: the smaller of the
// kernel's MemAvailable and what its control groups (version 2) leave. Includes page cache that can
// be dropped. 0 if unknown (known on Linux only). `root`: prefix of /proc and /sys, for tests.
int64_t AvailableMemoryBytes(const std::string& root = "");

// "Intel(R) Xeon(R) Processor"; empty if unknown (known on Linux only).
std::string CpuName();

}  // namespace winnow

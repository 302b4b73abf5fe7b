#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"

// The backends there are.
namespace winnow::kernels {

struct CpuOptions {
  ThreadPool* pool = nullptr;  // required; outlives the backend
  std::string target;  // empty: the best this machine has; otherwise a name from CpuTargets()
  // Whose cores memory is read for: "intel", "amd", "other" (cpu/processor.h); empty: this
  // machine's.
  std::string vendor = {};
  bool batch_invariant = false;  // Backend::batch_invariant; products of few rows take longer
};
// Instruction sets compiled in that this machine can run, best first.
std::vector<std::string> CpuTargets();
// Error: a target this machine or build does not have (lists those it has).
Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);

// The plain loops every other backend is compared with: double accumulation, no SIMD, no threads,
// weights dequantised. (Quantised products therefore differ from the CPU backend's by the rounding
// of the activations.)
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace winnow::kernels

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"

// Factories of the backends.
namespace winnow::kernels {

struct CpuOptions {
  ThreadPool* pool = nullptr;  // required; must outlive the backend
  std::string target;          // empty: the best that this machine supports; otherwise a name from
                               // CpuTargets()
  // CPU family that the prefetch policy suits: a name of CpuFamilyFromName (cpu/processor.h);
  // empty: the family of this machine.
  std::string family = {};
  bool batch_invariant = false;  // Backend::batch_invariant; slows down products of few rows
};
// Instruction sets compiled in that this machine can run, best first.
std::vector<std::string> CpuTargets();
// Error: this machine or build does not have the target; the message lists the available ones.
Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);

// The plain loops that every other backend is compared with: double accumulation, no SIMD, no
// threads, weights dequantised. (Quantised products therefore differ from the CPU backend's by the
// rounding of the activations.)
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace winnow::kernels

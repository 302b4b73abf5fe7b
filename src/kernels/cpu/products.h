#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"

// Kernels for float matrices on the host.
namespace winnow::kernels::cpu {

struct ProductKernels {
  // See Backend::Multiply and ExpMinusMax.
  void (*multiply)(const HostProduct& product);
  void (*exp_below)(std::span<float> x, float max);
};
const ProductKernels& ProductKernelsFor(int64_t target);

}  // namespace winnow::kernels::cpu

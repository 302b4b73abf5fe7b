#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/check.h"
#include "kernels/memory.h"

// Weights, and the products they are used in.
namespace winnow::kernels {

// A weight matrix prepared by a backend: `rows` output features, each a row of `cols` input
// features.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual TensorType type() const = 0;
  virtual int64_t rows() const = 0;
  virtual int64_t cols() const = 0;
};

// Source of a weight: blocks as in the GGUF file, row after row. `keep_alive` keeps `bytes` mapped.
struct WeightSource {
  std::string_view name;  // for messages
  TensorType type = TensorType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep_alive;
};

// One of several products that share an input.
struct Linear {
  const Weight* weight = nullptr;
  Matrix bias;              // [1, weight rows] or empty
  Matrix out;               // [x rows, weight rows]
  bool accumulate = false;  // out += instead of out =
};

// Rows of floats on the host; row i starts at data + i * stride.
template <class Float>
struct HostMatrixOf {
  Float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
};
using HostMatrix = HostMatrixOf<float>;
using ConstHostMatrix = HostMatrixOf<const float>;

// out = a b, or out += a b.  a [m, k], b [k, n], out [m, n], which must overlap neither.
struct HostProduct {
  ConstHostMatrix a;
  ConstHostMatrix b;
  HostMatrix out;
  bool accumulate = false;
};
// Requires: the shapes fit.
inline void Check(const HostProduct& p) {
  WINNOW_CHECK(p.a.cols == p.b.rows && p.out.rows == p.a.rows && p.out.cols == p.b.cols);
}
inline constexpr float kMaxExponent = 80;  // limit of the exponent in Backend::ExpMinusMax

enum class Activation { kSilu, kGelu };  // GELU: the tanh approximation, as in the reference engine

}  // namespace winnow::kernels

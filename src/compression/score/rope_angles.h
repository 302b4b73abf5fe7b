#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace winnow::compression::score {

// How a layer rotates its queries and keys: pair i by position * frequency(i), all scaled by one
// magnitude. A pair is a complex number, and rotation a product. The product of a rotated query and
// a rotated key is the sum over the pairs of Re(q * conj(k)), plus plain products of the dimensions
// that do not rotate.
class RopeAngles {
 public:
  // Reads the first two rows of the table: angles are proportional to the position.
  RopeAngles(kernels::Backend& backend, const kernels::RopeTable& rope);

  size_t n_pairs() const { return frequencies_.size(); }
  double frequency(size_t pair) const { return frequencies_[pair]; }
  double magnitude() const { return magnitude_; }
  // Dimensions of a pair; those from 2 * n_pairs on do not rotate.
  size_t real(size_t pair) const { return interleaved_ ? 2 * pair : pair; }
  size_t imaginary(size_t pair) const { return interleaved_ ? 2 * pair + 1 : pair + n_pairs(); }

  // The factor that rotates a pair at a position, magnitude included.
  std::complex<double> At(size_t pair, double position) const {
    return std::polar(magnitude_, position * frequencies_[pair]);
  }
  template <class Number>
  std::complex<double> Pair(std::span<const Number> vector, size_t pair) const {
    return {static_cast<double>(vector[real(pair)]), static_cast<double>(vector[imaginary(pair)])};
  }
  // Rotates a vector in place, or back.
  void Rotate(std::span<double> vector, double position) const;
  void Unrotate(std::span<double> vector, double position) const;

 private:
  void Multiply(std::span<double> vector, size_t pair, std::complex<double> factor) const;

  std::vector<double> frequencies_;
  double magnitude_ = 1;
  bool interleaved_ = false;
};

}  // namespace winnow::compression::score

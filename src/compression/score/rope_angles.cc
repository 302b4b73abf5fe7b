#include "compression/score/rope_angles.h"

#include <cmath>

namespace winnow::compression::score {

RopeAngles::RopeAngles(kernels::Backend& backend, const kernels::RopeTable& rope)
    : frequencies_(static_cast<size_t>(rope.n_rotated / 2)), interleaved_(rope.interleaved) {
  if (frequencies_.empty() || rope.table.rows < 2) return;
  std::vector<float> cos_sin(static_cast<size_t>(rope.table.cols));
  backend.Read(rope.table.Rows(0, 1), cos_sin);
  magnitude_ = cos_sin[0];
  backend.Read(rope.table.Rows(1, 1), cos_sin);
  for (size_t pair = 0; pair < n_pairs(); ++pair) {
    frequencies_[pair] = std::atan2(cos_sin[n_pairs() + pair], cos_sin[pair]);
  }
}

void RopeAngles::Multiply(std::span<double> vector, size_t pair,
                          std::complex<double> factor) const {
  const std::complex<double> product =
      factor * std::complex<double>(vector[real(pair)], vector[imaginary(pair)]);
  vector[real(pair)] = product.real();
  vector[imaginary(pair)] = product.imag();
}

void RopeAngles::Rotate(std::span<double> vector, double position) const {
  for (size_t pair = 0; pair < n_pairs(); ++pair) Multiply(vector, pair, At(pair, position));
}

void RopeAngles::Unrotate(std::span<double> vector, double position) const {
  for (size_t pair = 0; pair < n_pairs(); ++pair) Multiply(vector, pair, 1.0 / At(pair, position));
}

}  // namespace winnow::compression::score

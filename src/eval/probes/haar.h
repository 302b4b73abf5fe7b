#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow::eval {

// The detail of one level of the Haar wavelet decomposition, reconstructed: Rec(D_level) of TreeKV,
// section 3.3. For the Haar wavelet it has a closed form: the mean of the row's block of
// 2^(level-1) rows minus the mean of its block of 2^level rows. The details of levels 1..L and the
// means of the blocks of 2^L rows add up to the signal.
//   signal  [n, width], n a multiple of 2^level; every column is a signal of its own
//   result  [n, width]
std::vector<double> HaarDetail(std::span<const double> signal, int64_t width, int level);

}  // namespace winnow::eval

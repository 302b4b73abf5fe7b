#pragma once

#include "compression/method.h"
#include "kernels/ops.h"

// Sharing the taps of one pass of attention between several readers: the parts of a method, or two
// methods. Readers that reduce over the query heads of a group in different ways are served from
// unreduced taps; each sees what it asked for.
namespace winnow::compression {

// The taps that a method needs in a call after which the sequence has n_seen tokens.
kernels::TapSpec TapsOfCall(const Needs& needs, Phase phase, int64_t n_seen);

// Whether one pass can serve both. It cannot if they sum over different numbers of last queries, or
// if they reduce differently and one of them wants sums that cannot be computed from those of the
// single query heads: sums of squares, or maxima.
bool CanServe(const kernels::TapSpec& a, const kernels::TapSpec& b);

// The taps that serve both. Requires: CanServe(a, b).
kernels::TapSpec Join(const kernels::TapSpec& a, const kernels::TapSpec& b);

// Taps in the form `wanted` asks for, from `found`, which was taken for `joined`: `found` itself,
// or its reduction, written to `reduced`. A reader of last rows may find more rows than it asked
// for; the newest are its own.
//   group  query heads per KV head
const kernels::Taps& ReduceTapsTo(const kernels::TapSpec& wanted, const kernels::TapSpec& joined,
                                  const kernels::Taps& found, int group, kernels::Taps& reduced);

}  // namespace winnow::compression

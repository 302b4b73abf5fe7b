#pragma once

#include "compression/method.h"
#include "kernels/ops.h"

// One pass of attention, several readers: the parts of a method, or two methods. Readers that
// reduce over the query heads of a group in different ways are served from unreduced taps, and each
// sees what it asked for.
namespace winnow::compression {

// What a method asks of attention in a call after which the sequence has n_seen tokens.
kernels::TapSpec TapsOfCall(const Needs& needs, Phase phase, int64_t n_seen);

// Whether one pass can serve both. It cannot if they sum over different numbers of last queries, or
// if they reduce differently and one of them wants sums that do not follow from those of the single
// query heads: of squares, or of maxima.
bool CanServe(const kernels::TapSpec& a, const kernels::TapSpec& b);

// What to ask of attention so that both are served. Requires: CanServe(a, b).
kernels::TapSpec Join(const kernels::TapSpec& a, const kernels::TapSpec& b);

// `found`, taken as `joined` asks, the way `wanted` asks for it: `found` itself, or reduced into
// `reduced`. Readers of last rows may find more of them than they asked for: theirs are the newest.
//   group  query heads per KV head
const kernels::Taps& ReadAs(const kernels::TapSpec& wanted, const kernels::TapSpec& joined,
                            const kernels::Taps& found, int group, kernels::Taps& reduced);

}  // namespace winnow::compression

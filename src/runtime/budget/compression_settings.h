#pragma once

#include "base/result.h"
#include "runtime/budget/compression_options.h"
#include "winnow/compression.h"

namespace winnow::runtime {

// Methods made, budget checked. The full cache has no method and no budget of slots; a limit in
// bytes holds for it too. Errors, in these words (and `problem`, where it is wanted): no such
// method or parameter, methods that cannot work together, those of FindProblem.
Result<CompressionOptions> MakeCompression(const Compression& wanted, const CompressionWords& words,
                                           CompressionProblem* problem = nullptr);

}  // namespace winnow::runtime

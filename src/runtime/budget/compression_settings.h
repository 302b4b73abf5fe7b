#pragma once

#include "base/result.h"
#include "runtime/budget/compression_options.h"
#include "winnow/compression.h"

namespace winnow::runtime {

// Makes the methods and checks the budget. The full cache has no method and no budget of slots, but
// a limit in bytes applies to it too. Errors, worded with `words` (and in `problem`, unless null):
// no such method or parameter, methods that cannot work together, those of FindProblem.
Result<CompressionOptions> MakeCompression(const Compression& wanted,
                                           const CompressionFieldNames& words,
                                           CompressionProblem* problem = nullptr);

}  // namespace winnow::runtime

#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "flags.h"
#include "kv_flags.h"
#include "runtime/compressor.h"

// Several methods in one command line.
namespace winnow::apps {

// --kv-method LIST, which can be repeated.
void AddMethodListFlag(FlagTable& table, std::vector<std::string>* methods);

// A method under the budget of the flags. One that finds its own size is given none but a limit in
// bytes, if it can follow one (refreekv). Errors: those of CompressionOptionsFrom.
Result<runtime::CompressionOptions> OptionsOfMethod(const KvFlags& flags,
                                                    const std::string& method);

}  // namespace winnow::apps

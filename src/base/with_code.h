#pragma once

#include "base/result.h"

namespace winnow {

// The same result, but an error without a code (kUnknown) gets `code`.
template <class T>
Result<T> WithCode(Result<T> result, ErrorCode code) {
  if (result || result.error().code != ErrorCode::kUnknown) return result;
  return Error{.message = result.error().message, .code = code};
}

}  // namespace winnow

#pragma once

// Result is part of the public API; this header adds macros for internal use.
#include "base/check.h"
#include "winnow/result.h"

namespace winnow {

// The error with `prefix`, which says where it happened, before its message.
inline Error Prefixed(std::string prefix, const Error& error) {
  return {.message = std::move(prefix) + error.message, .code = error.code};
}

}  // namespace winnow

// Returns the error of `expression` from the enclosing function, if it has one.
#define WINNOW_TRY(expression)                                                   \
  do {                                                                           \
    if (auto winnow_try_result = (expression); !winnow_try_result.has_value()) { \
      return winnow_try_result.error();                                          \
    }                                                                            \
  } while (false)

// Assigns the value of `expression` to `declaration`, or returns its error from the enclosing
// function.
#define WINNOW_ASSIGN(declaration, expression) \
  WINNOW_ASSIGN_IMPL(WINNOW_CONCAT(winnow_result_, __LINE__), declaration, expression)
#define WINNOW_CONCAT_IMPL(a, b) a##b
#define WINNOW_CONCAT(a, b) WINNOW_CONCAT_IMPL(a, b)
#define WINNOW_ASSIGN_IMPL(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result.has_value()) return result.error();           \
  declaration = std::move(result).value()

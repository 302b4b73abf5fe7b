#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace winnow {

// What the world did wrong: the message says what was found, what was expected, and where.
struct Error {
  std::string message;
  bool operator==(const Error&) const = default;
};

// A value or an Error, with the members of std::expected (which C++20 does not have yet).
// Reading the wrong side is a bug and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}    // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    WINNOW_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    WINNOW_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    WINNOW_CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    WINNOW_CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }

  template <typename U>
  T value_or(U&& fallback) const& {
    return has_value() ? value() : static_cast<T>(std::forward<U>(fallback));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const { WINNOW_CHECK(has_value()); }
  const Error& error() const {
    WINNOW_CHECK(!has_value());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace winnow

// Returns the error of `expression` from the enclosing function, if it has one.
#define WINNOW_TRY(expression)                               \
  do {                                                       \
    if (auto winnow_try_result = (expression); !winnow_try_result.has_value()) { \
      return winnow_try_result.error();                      \
    }                                                        \
  } while (false)

// `declaration` = value of `expression`, or returns its error from the enclosing function.
#define WINNOW_ASSIGN(declaration, expression) \
  WINNOW_ASSIGN_IMPL(WINNOW_CONCAT(winnow_result_, __LINE__), declaration, expression)
#define WINNOW_CONCAT_IMPL(a, b) a##b
#define WINNOW_CONCAT(a, b) WINNOW_CONCAT_IMPL(a, b)
#define WINNOW_ASSIGN_IMPL(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result.has_value()) return result.error();           \
  declaration = std::move(result).value()

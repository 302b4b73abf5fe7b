#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace winnow {

// Kinds of error, for programs that handle them differently. The library's calls never return
// kUnknown.
enum class ErrorCode {
  kUnknown,
  kInvalid,      // can never succeed: an option, a token, a text longer than the context
  kFile,         // a file does not exist, or cannot be read or written
  kFormat,       // a file was read, but is damaged, of another kind, or of another model
  kNotFound,     // no such session
  kBusy,         // in use by another call
  kTooLarge,     // needs more than the memory limit, or than the machine has
  kQueueFull,    // try again later
  kUnavailable,  // shutting down
  kCancelled,    // cancelled by the caller
  kInternal,     // the library broke an invariant: a bug
};

// An error caused from outside: a file, a request, a memory limit. The message says what was found,
// what was expected, and where.
struct Error {
  std::string message;
  ErrorCode code = ErrorCode::kUnknown;
  bool operator==(const Error&) const = default;
};

namespace internal {
[[noreturn]] inline void ReadWrongSide(const char* what) {
  std::fprintf(stderr, "winnow: bug: the %s of a Result was read, which holds none\n", what);
  std::abort();
}
}  // namespace internal

// A value or an Error, with the members of std::expected, which C++20 does not have yet. Reading
// the side it does not hold is a bug and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    if (!has_value()) internal::ReadWrongSide("value");
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    if (!has_value()) internal::ReadWrongSide("value");
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    if (!has_value()) internal::ReadWrongSide("value");
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    if (has_value()) internal::ReadWrongSide("error");
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
  void value() const {
    if (!has_value()) internal::ReadWrongSide("value");
  }
  const Error& error() const {
    if (has_value()) internal::ReadWrongSide("error");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace winnow

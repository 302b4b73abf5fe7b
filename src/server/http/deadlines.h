#pragma once

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>

namespace winnow::server {

// The deadlines of one connection, on one timer. Not thread-safe: used on the connection's strand,
// where the callback also runs.
class Deadlines : public std::enable_shared_from_this<Deadlines> {
 public:
  enum Kind { kRead, kWrite, kPing, kHangup };
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Deadlines(const boost::asio::any_io_executor& executor) : timer_(executor) {}
  // `passed` is called once for each deadline that passes.
  void Start(std::function<void(Kind kind)> passed) { passed_ = std::move(passed); }
  void Set(Kind kind, std::chrono::milliseconds from_now);
  void Clear(Kind kind) { at_[kind] = kNever; }
  // Permanently; drops the callback.
  void Stop();

 private:
  static constexpr TimePoint kNever = TimePoint::max();
  void Arm();
  void OnTimer();

  boost::asio::steady_timer timer_;
  std::array<TimePoint, 4> at_ = {kNever, kNever, kNever, kNever};
  TimePoint timer_at_ = kNever;  // when the timer fires; early if a deadline has moved since
  std::function<void(Kind kind)> passed_;
};

}  // namespace winnow::server

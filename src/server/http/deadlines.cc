#include "server/http/deadlines.h"

#include <algorithm>
#include <utility>

namespace winnow::server {

void Deadlines::Set(Kind kind, std::chrono::milliseconds from_now) {
  at_[kind] = std::chrono::steady_clock::now() + from_now;
  Arm();
}

void Deadlines::Stop() {
  passed_ = nullptr;
  boost::system::error_code ignored;
  timer_.cancel(ignored);
}

void Deadlines::Arm() {
  const TimePoint next = *std::min_element(at_.begin(), at_.end());
  if (passed_ == nullptr || next >= timer_at_) return;
  timer_at_ = next;
  timer_.expires_at(next);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    if (error) return;
    if (const auto self = weak.lock()) self->OnTimer();
  });
}

void Deadlines::OnTimer() {
  timer_at_ = kNever;
  const TimePoint now = std::chrono::steady_clock::now();
  for (const Kind kind : {kWrite, kRead, kPing, kHangup}) {
    if (at_[kind] > now) continue;
    at_[kind] = kNever;
    // Copied: the callback may call Stop, which destroys it.
    if (const auto passed = passed_) passed(kind);
  }
  Arm();
}

}  // namespace winnow::server

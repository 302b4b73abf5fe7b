#pragma once

#include <atomic>
#include <memory>

namespace winnow {

// Ends work from another thread: while a prompt is read within a part of a layer, later with the
// next token. Copies are the same token. A token without a state, as by default, cancels nothing.
// Thread-safe.
class CancellationToken {
 public:
  CancellationToken() = default;
  static CancellationToken Make() {
    CancellationToken token;
    token.flag_ = std::make_shared<std::atomic<bool>>(false);
    return token;
  }

  void Cancel() {
    if (flag_) flag_->store(true, std::memory_order_relaxed);
  }
  bool cancelled() const { return flag_ && flag_->load(std::memory_order_relaxed); }
  // For the library.
  const std::shared_ptr<std::atomic<bool>>& flag() const { return flag_; }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

}  // namespace winnow

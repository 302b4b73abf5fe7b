#pragma once

#include <atomic>
#include <cstddef>

namespace winnow::server {

// A number of bytes that several holders share, up to a maximum. Thread-safe.
class ByteLimit {
 public:
  explicit ByteLimit(size_t max) : max_(max) {}
  ByteLimit(const ByteLimit&) = delete;
  ByteLimit& operator=(const ByteLimit&) = delete;

  size_t held() const { return held_; }

  // One holder's bytes. Not thread-safe itself. The limit must outlive the share.
  class Share {
   public:
    explicit Share(ByteLimit& limit) : limit_(limit) {}
    ~Share() { Resize(0); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // False: the total would exceed the maximum; the share keeps its size.
    bool Resize(size_t bytes) {
      if (bytes <= bytes_) {
        limit_.held_ -= bytes_ - bytes;
      } else if (!limit_.Add(bytes - bytes_)) {
        return false;
      }
      bytes_ = bytes;
      return true;
    }

   private:
    ByteLimit& limit_;
    size_t bytes_ = 0;
  };

 private:
  bool Add(size_t more) {
    if (held_.fetch_add(more) + more <= max_) return true;
    held_ -= more;
    return false;
  }

  const size_t max_;
  std::atomic<size_t> held_{0};
};

}  // namespace winnow::server

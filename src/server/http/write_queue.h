#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace winnow::server {

// Bytes waiting to be written to a client, in pieces. Not thread-safe.
class WriteQueue {
 public:
  void Push(std::string bytes) {
    n_bytes_ += bytes.size();
    capacity_ += bytes.capacity();
    pieces_.push_back(std::move(bytes));
  }
  bool empty() const { return pieces_.empty(); }
  size_t n_bytes() const { return n_bytes_; }
  size_t capacity() const { return capacity_; }  // of the strings that hold the bytes

  // The first pieces, at most 32. They stay valid until PopWritten.
  std::vector<boost::asio::const_buffer> BeginWriting() {
    constexpr size_t kMaxPieces = 32;
    n_writing_ = std::min(pieces_.size(), kMaxPieces);
    std::vector<boost::asio::const_buffer> buffers;
    for (size_t i = 0; i < n_writing_; ++i) buffers.push_back(boost::asio::buffer(pieces_[i]));
    return buffers;
  }
  void PopWritten() {
    for (; n_writing_ > 0; --n_writing_) {
      n_bytes_ -= pieces_.front().size();
      capacity_ -= pieces_.front().capacity();
      pieces_.pop_front();
    }
  }
  void Clear() { *this = WriteQueue(); }

 private:
  std::deque<std::string> pieces_;
  size_t n_bytes_ = 0;
  size_t capacity_ = 0;
  size_t n_writing_ = 0;
};

}  // namespace winnow::server

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

// Splits the input of a fuzz target into values: numbers from its end, strings from its beginning,
// like libFuzzer's FuzzedDataProvider, which comes with clang only. When the input is used up,
// numbers are the minimum and strings are empty.
class FuzzedData {
 public:
  FuzzedData(const uint8_t* data, size_t size) : begin_(data), size_(size) {}

  size_t remaining_bytes() const { return size_; }

  template <typename T>
  T ConsumeIntegralInRange(T min, T max) {
    const uint64_t range = static_cast<uint64_t>(max) - static_cast<uint64_t>(min);
    uint64_t value = 0;
    for (size_t bits = 0; bits < sizeof(T) * 8 && (range >> bits) > 0 && size_ > 0; bits += 8) {
      value = value << 8 | begin_[--size_];
    }
    if (range != std::numeric_limits<uint64_t>::max()) value %= range + 1;
    return static_cast<T>(static_cast<uint64_t>(min) + value);
  }
  template <typename T>
  T ConsumeIntegral() {
    return ConsumeIntegralInRange(std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  bool ConsumeBool() { return ConsumeIntegralInRange<int>(0, 1) == 1; }
  // In [0, 1].
  double ConsumeProbability() {
    return static_cast<double>(ConsumeIntegral<uint64_t>()) /
           static_cast<double>(std::numeric_limits<uint64_t>::max());
  }
  // Any finite number.
  double ConsumeNumber() {
    const double most = std::numeric_limits<double>::max();
    return (ConsumeBool() ? 1 : -1) * most * ConsumeProbability();
  }

  std::vector<uint8_t> ConsumeBytes(size_t n) {
    n = std::min(n, size_);
    std::vector<uint8_t> bytes(begin_, begin_ + n);
    Skip(n);
    return bytes;
  }
  // A backslash ends the string, except that two backslashes are one.
  std::string ConsumeRandomLengthString(size_t max_length) {
    std::string text;
    while (text.size() < max_length && size_ > 0) {
      const char next = Front();
      if (next != '\\' || size_ == 0) {
        text += next;
      } else if (Front() == '\\') {
        text += '\\';
      } else {
        break;
      }
    }
    return text;
  }
  std::string ConsumeRemainingBytesAsString() {
    std::string text(begin_, begin_ + size_);
    Skip(size_);
    return text;
  }

 private:
  char Front() {
    const char first = static_cast<char>(*begin_);
    Skip(1);
    return first;
  }
  void Skip(size_t n) {
    begin_ += n;
    size_ -= n;
  }

  const uint8_t* begin_;
  size_t size_;
};

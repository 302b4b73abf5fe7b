#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "kernels/backends.h"
#include "kernels/ops.h"

// Shared code of the conformance tests: they run an op on the reference and on every instruction
// set that this machine has, and compare the results.
namespace winnow::kernels::testing_support {

// Relative to the largest magnitude of the expected values: float sums of some hundred terms, and
// exponentials accurate to 1e-7.
inline constexpr double kFloatTolerance = 2e-6;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // Nearly normal, within 3.5 deviations: sums of four uniform numbers, because drawing from
  // std::normal_distribution took a third of the tests' time.
  std::vector<float> Normal(int64_t n, float deviation = 1) {
    const float unit = deviation * std::sqrt(3.0f) / 65536;
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
      const uint64_t bits = engine_();
      const auto sum = static_cast<int>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                        (bits >> 32 & 0xFFFF) + (bits >> 48));
      value = unit * static_cast<float>(sum - 2 * 65535);
    }
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// A matrix with its memory. The row stride exceeds the number of columns, so that code that
// confuses the two fails.
struct Owned {
  std::unique_ptr<Storage> storage;
  Matrix matrix;
};

inline constexpr int64_t kStridePadding = 3;
inline constexpr float kPaddingValue = 12345.0f;

inline Owned Make(Backend& backend, int64_t rows, int64_t cols, std::span<const float> values) {
  const int64_t stride = cols + kStridePadding;
  Owned owned;
  owned.storage = std::move(backend.Allocate((rows * stride + 1) * 4)).value();
  const Matrix whole = {owned.storage.get(), 1, rows, stride, stride};
  backend.Write(whole, std::vector<float>(static_cast<size_t>(rows * stride), kPaddingValue));
  owned.matrix = whole.Cols(0, cols);
  backend.Write(owned.matrix, values);
  return owned;
}

inline std::vector<float> Contents(Backend& backend, const Matrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.cols));
  backend.Read(matrix, values);
  return values;
}

// Expects that nothing was written between the rows.
inline void ExpectPaddingIntact(Backend& backend, const Owned& owned) {
  Matrix padding = owned.matrix;
  padding.offset += padding.cols;
  padding.cols = kStridePadding;
  padding.rows -= 1;  // the last row's padding lies past the end of the matrix
  for (const float value : Contents(backend, padding)) ASSERT_EQ(value, kPaddingValue);
}

template <typename T>
void ExpectClose(const std::vector<T>& found, const std::vector<T>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0;
  for (const T value : expected) largest = std::max(largest, std::fabs(double{value}));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_LE(std::fabs(double{found[i]} - double{expected[i]}), tolerance * largest + 1e-30)
        << what << ": element " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

class Conformance : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<Backend> Cpu(ThreadPool& pool, const std::string& family = "") {
    return std::move(MakeCpuBackend({.pool = &pool, .target = GetParam(), .family = family}))
        .value();
  }

  // Runs `op`, which returns its results, on the reference and on the CPU with 1 and 3 threads;
  // under sanitizers, where it takes minutes, with 3 only.
  template <typename Op>
  void Compare(const Op& op, double tolerance, const std::string& what) {
    const std::unique_ptr<Backend> reference = MakeReferenceBackend();
    const std::vector<float> expected = op(*reference);
    ThreadPool one(1), three(3);
    const std::vector<float> found = op(*Cpu(three));
    ExpectClose(found, expected, tolerance, what);
#ifndef WINNOW_SANITIZES_MEMORY
    EXPECT_EQ(op(*Cpu(one)), found) << what << ": depends on the number of threads";
#endif
  }
};

inline constexpr TensorType kCacheTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                             TensorType::kQ8_0, TensorType::kQ4_0};

inline bool IsBlockType(TensorType type) { return gguf::GetTypeInfo(type).block_elements > 1; }

// CpuTargets(). Under AddressSanitizer, where each target takes minutes, only the best and the
// plainest: all targets are compiled from the same source.
inline std::vector<std::string> TestedTargets() {
  std::vector<std::string> targets = CpuTargets();
#ifdef WINNOW_SANITIZES_MEMORY
  if (targets.size() > 2) targets = {targets.front(), targets.back()};
#endif
  return targets;
}

inline std::string NameOfTarget(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace winnow::kernels::testing_support

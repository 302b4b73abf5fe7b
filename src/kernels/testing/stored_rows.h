#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/testing/conformance.h"

// Cache rows for tests of the compression operations.
namespace winnow::kernels::testing_support {

// Cosines are sums of up to 128 float products, each accurate to 1e-7.
inline constexpr double kCosineTolerance = 2e-6;

// Rows of one head at an offset, in a storage that ends with the last row.
struct StoredRows {
  std::unique_ptr<Storage> storage;
  HeadRows head;
};

inline constexpr int64_t kOffsetRows = 3;

inline StoredRows Store(Backend& b, TensorType type, int dim, std::span<const float> values) {
  const int64_t n = static_cast<int64_t>(values.size()) / dim;
  const int64_t offset = kOffsetRows * gguf::RowBytes(type, dim);
  StoredRows stored;
  stored.storage = std::move(b.Allocate(offset + n * gguf::RowBytes(type, dim))).value();
  stored.head = {stored.storage.get(), offset, dim, type};
  const HeadStore store = {stored.storage.get(), stored.storage.get(), offset, offset, n};
  const int64_t first[1] = {0};
  const Owned rows = Make(b, n, dim, values);
  b.StoreRows(rows.matrix, {{&store, 1}, first, type, true});
  return stored;
}

inline std::vector<int32_t> AllRows(int64_t n) {
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// [row, dim]
inline std::vector<float> Read(Backend& b, const HeadRows& head, const std::vector<int32_t>& rows) {
  std::vector<float> values(rows.size() * static_cast<size_t>(head.dim));
  b.ReadRows(head, rows, values);
  return values;
}

}  // namespace winnow::kernels::testing_support

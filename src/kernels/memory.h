#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gguf/tensor_type.h"

// Memory of a backend, matrices in it, and the types of stored elements.
namespace winnow::kernels {

using gguf::TensorType;

// Memory of one backend. Only the backend that allocated it may look inside.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual int64_t size_bytes() const = 0;
};

struct ByteRange {
  int64_t first = 0;
  int64_t end = 0;
};

// Handle to a row-major float32 matrix. Owns nothing; empty when storage is null.
struct Matrix {
  Storage* storage = nullptr;
  int64_t offset = 0;  // floats from the start of the storage to element (0, 0)
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // floats from one row to the next, >= cols

  bool empty() const { return storage == nullptr; }
  Matrix Rows(int64_t first, int64_t n) const {
    return {storage, offset + first * stride, n, cols, stride};
  }
  Matrix Cols(int64_t first, int64_t n) const { return {storage, offset + first, rows, n, stride}; }
  bool operator==(const Matrix&) const = default;
};

// Storage types of a cache: F32, F16, BF16, Q8_0, Q4_0. Quantised types need head_dim % 32 == 0.
bool IsCacheType(TensorType type);

// Converts stored blocks of any supported type to floats, or floats to blocks, with plain loops.
// Requires: blocks.size() is the bytes of as many elements as there are floats.
void Dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> out);
// Cache types only (IsCacheType).
void Quantize(TensorType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace winnow::kernels

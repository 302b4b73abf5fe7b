#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gguf/tensor_type.h"
#include "kernels/linear.h"

namespace winnow::kernels::cpu {

// Weights stay in the mapped file: loading costs nothing, and pages are shared between processes.
class MappedWeight final : public Weight {
 public:
  explicit MappedWeight(const WeightSource& source)
      : type_(source.type),
        rows_(source.rows),
        cols_(source.cols),
        row_bytes_(gguf::RowBytes(source.type, source.cols)),
        data_(source.bytes.data()),
        keep_alive_(source.keep_alive) {}

  TensorType type() const override { return type_; }
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }

  const std::byte* data() const { return data_; }
  std::span<const std::byte> Row(int64_t row) const {
    return {data_ + row * row_bytes_, static_cast<size_t>(row_bytes_)};
  }

 private:
  TensorType type_;
  int64_t rows_;
  int64_t cols_;
  int64_t row_bytes_;
  const std::byte* data_;
  std::shared_ptr<const void> keep_alive_;
};

}  // namespace winnow::kernels::cpu

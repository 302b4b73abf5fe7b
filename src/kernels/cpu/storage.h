#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernels/ops.h"

namespace winnow::kernels::cpu {

// Zeroed anonymous pages, committed as they are first touched, given back by Release.
class CpuStorage : public Storage {
 public:
  // Error: the system refuses.
  static Result<std::unique_ptr<CpuStorage>> Make(int64_t bytes);
  ~CpuStorage() override;
  CpuStorage(const CpuStorage&) = delete;
  CpuStorage& operator=(const CpuStorage&) = delete;

  int64_t size_bytes() const override { return size_bytes_; }
  std::byte* data() { return data_; }

  // Gives back the whole pages inside [offset, offset + bytes); what lay in the range is lost.
  void Release(int64_t offset_bytes, int64_t bytes);

 private:
  CpuStorage(std::byte* data, int64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  std::byte* data_;
  int64_t size_bytes_;
};

}  // namespace winnow::kernels::cpu

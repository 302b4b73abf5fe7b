#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"

namespace winnow::kernels::cpu {

// Zeroed anonymous pages, committed when first touched, returned to the system by Release.
class CpuStorage : public Storage {
 public:
  // kUpfront: a large storage requests huge pages from the start. kGrowing: huge pages only where
  // UseHugePages finds them nearly full.
  enum class Commit { kUpfront, kGrowing };

  // Error: the system refuses the memory.
  static Result<std::unique_ptr<CpuStorage>> Make(int64_t bytes, Commit filling);
  ~CpuStorage() override;
  CpuStorage(const CpuStorage&) = delete;
  CpuStorage& operator=(const CpuStorage&) = delete;

  int64_t size_bytes() const override { return size_bytes_; }
  std::byte* data() { return data_; }

  // Returns the whole pages inside [offset, offset + bytes) to the system; the content of the range
  // is lost.
  void Release(int64_t offset_bytes, int64_t bytes);

  // See Backend::UseHugePages. Does nothing unless kGrowing.
  void UseHugePages(std::span<const ByteRange> used);

 private:
  CpuStorage(std::byte* data, int64_t size_bytes, Commit filling);
  // Start of the first huge page that lies wholly inside the storage: number 0 in packed_.
  std::byte* FirstHugePage() const;
  void Pack(size_t huge_page);
  void Unpack(int64_t offset_bytes, int64_t end_bytes);

  std::byte* data_;
  int64_t size_bytes_;
  std::vector<bool> packed_;  // [huge page]; empty unless kGrowing
};

}  // namespace winnow::kernels::cpu

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"

namespace winnow::kernels::cpu {

// Zeroed anonymous pages, committed as they are first touched, given back by Release.
class CpuStorage : public Storage {
 public:
  // kWhole: a large storage is committed in huge pages from the first touch on; kGrowing: only
  // where Settle finds them full.
  enum class Filling { kWhole, kGrowing };

  // Error: the system refuses.
  static Result<std::unique_ptr<CpuStorage>> Make(int64_t bytes, Filling filling);
  ~CpuStorage() override;
  CpuStorage(const CpuStorage&) = delete;
  CpuStorage& operator=(const CpuStorage&) = delete;

  int64_t size_bytes() const override { return size_bytes_; }
  std::byte* data() { return data_; }

  // Gives back the whole pages inside [offset, offset + bytes); what lay in the range is lost.
  void Release(int64_t offset_bytes, int64_t bytes);

  // Backend::Settle. Requires: kGrowing.
  void UseHugePages(std::span<const ByteRange> used);

 private:
  CpuStorage(std::byte* data, int64_t size_bytes, Filling filling);
  // Huge pages that lie wholly inside count from here.
  std::byte* FirstHugePage() const;
  void Pack(size_t huge_page);
  void Unpack(int64_t offset_bytes, int64_t end_bytes);

  std::byte* data_;
  int64_t size_bytes_;
  std::vector<bool> packed_;  // [huge page]; empty unless growing
};

}  // namespace winnow::kernels::cpu

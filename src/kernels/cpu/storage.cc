#include "kernels/cpu/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"

namespace winnow::kernels::cpu {
namespace {

// All madvise calls are hints: if the system refuses one, small pages work too.
constexpr int64_t kHugePageBytes = 2 << 20;
// Mappings of at least this size request huge pages: fewer TLB misses, at most one huge page of
// waste.
constexpr int64_t kHugePagesFromBytes = 8 << 20;
// A huge page replaces small ones only if at least this much of it is in use.
constexpr int64_t kFullBytes = kHugePageBytes / 8 * 7;
#ifndef MADV_COLLAPSE  // since Linux 6.1
constexpr int MADV_COLLAPSE = 25;
#endif

}  // namespace

CpuStorage::CpuStorage(std::byte* data, int64_t size_bytes, Commit filling)
    : data_(data), size_bytes_(size_bytes) {
  if (filling == Commit::kUpfront) {
    if (size_bytes >= kHugePagesFromBytes)
      madvise(data, static_cast<size_t>(size_bytes), MADV_HUGEPAGE);
    return;
  }
  madvise(data, static_cast<size_t>(size_bytes), MADV_NOHUGEPAGE);
  const int64_t before = FirstHugePage() - data_;
  packed_.resize(static_cast<size_t>(std::max<int64_t>(0, size_bytes - before) / kHugePageBytes));
}

std::byte* CpuStorage::FirstHugePage() const {
  const auto address = reinterpret_cast<uintptr_t>(data_);
  return data_ + (-address & uintptr_t{kHugePageBytes - 1});
}

Result<std::unique_ptr<CpuStorage>> CpuStorage::Make(int64_t bytes, Commit filling) {
  WINNOW_CHECK(bytes >= 0);
  if (bytes == 0) return std::unique_ptr<CpuStorage>(new CpuStorage(nullptr, 0, Commit::kUpfront));
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error{.message = "memory: cannot allocate " + std::to_string(bytes) +
                            " bytes: " + std::strerror(errno),
                 .code = ErrorCode::kTooLarge};
  }
  return std::unique_ptr<CpuStorage>(new CpuStorage(static_cast<std::byte*>(data), bytes, filling));
}

CpuStorage::~CpuStorage() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_bytes_));
}

void CpuStorage::Release(int64_t offset_bytes, int64_t bytes) {
  WINNOW_CHECK(offset_bytes >= 0 && bytes >= 0 && offset_bytes + bytes <= size_bytes_);
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = (offset_bytes + page - 1) / page * page;
  // The last page of the mapping counts as whole: nothing else lies beyond its end.
  const int64_t end =
      offset_bytes + bytes == size_bytes_ ? size_bytes_ : (offset_bytes + bytes) / page * page;
  if (first >= end) return;
  madvise(data_ + first, static_cast<size_t>(end - first), MADV_DONTNEED);
  if (!packed_.empty()) Unpack(first, end);
}

void CpuStorage::UseHugePages(std::span<const ByteRange> used) {
  const int64_t before = FirstHugePage() - data_;
  size_t page = 0;
  int64_t in_use = 0;  // bytes in use of `page`
  for (const ByteRange& range : used) {
    for (int64_t at = std::max(range.first, before); at < range.end;) {
      const auto now = static_cast<size_t>((at - before) / kHugePageBytes);
      if (now >= packed_.size()) return;
      if (now != page) in_use = 0;
      page = now;
      const int64_t end =
          std::min(range.end, before + static_cast<int64_t>(page + 1) * kHugePageBytes);
      in_use += end - at;
      at = end;
      if (in_use >= kFullBytes && !packed_[page]) Pack(page);
    }
  }
}

void CpuStorage::Pack(size_t huge_page) {
  packed_[huge_page] = true;  // set even if the system refuses, so that it is not asked again
  std::byte* from = FirstHugePage() + static_cast<int64_t>(huge_page) * kHugePageBytes;
  madvise(from, kHugePageBytes, MADV_HUGEPAGE);
  // Commit a page first: MADV_COLLAPSE finds nothing to collapse in untouched memory.
  volatile std::byte* const first = from;
  *first = *first;
  if (madvise(from, kHugePageBytes, MADV_COLLAPSE) != 0) {
    madvise(from, kHugePageBytes, MADV_NOHUGEPAGE);
  }
}

// A huge page that was partly released refills with small pages.
void CpuStorage::Unpack(int64_t offset_bytes, int64_t end_bytes) {
  const int64_t before = FirstHugePage() - data_;
  const int64_t first = std::max<int64_t>(0, offset_bytes - before) / kHugePageBytes;
  const int64_t n_pages = static_cast<int64_t>(packed_.size());
  for (int64_t page = first; page < n_pages && before + page * kHugePageBytes < end_bytes; ++page) {
    if (!packed_[static_cast<size_t>(page)]) continue;
    packed_[static_cast<size_t>(page)] = false;
    madvise(data_ + before + page * kHugePageBytes, kHugePageBytes, MADV_NOHUGEPAGE);
  }
}

}  // namespace winnow::kernels::cpu

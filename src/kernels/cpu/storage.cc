#include "kernels/cpu/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"

namespace winnow::kernels::cpu {
namespace {

// From here on a mapping asks for huge pages: fewer TLB misses, at most one huge page of waste.
constexpr int64_t kHugeFromBytes = 8 << 20;

}  // namespace

Result<std::unique_ptr<CpuStorage>> CpuStorage::Make(int64_t bytes) {
  WINNOW_CHECK(bytes >= 0);
  if (bytes == 0) return std::unique_ptr<CpuStorage>(new CpuStorage(nullptr, 0));
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error{"memory: " + std::to_string(bytes) + " bytes wanted: " + std::strerror(errno)};
  }
  // Advice only: where it is refused, small pages do.
  if (bytes >= kHugeFromBytes) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return std::unique_ptr<CpuStorage>(new CpuStorage(static_cast<std::byte*>(data), bytes));
}

CpuStorage::~CpuStorage() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_bytes_));
}

void CpuStorage::Release(int64_t offset_bytes, int64_t bytes) {
  WINNOW_CHECK(offset_bytes >= 0 && bytes >= 0 && offset_bytes + bytes <= size_bytes_);
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = (offset_bytes + page - 1) / page * page;
  // The last page of the mapping counts as whole: nothing else lies behind its end.
  const int64_t end =
      offset_bytes + bytes == size_bytes_ ? size_bytes_ : (offset_bytes + bytes) / page * page;
  if (first < end) madvise(data_ + first, static_cast<size_t>(end - first), MADV_DONTNEED);
}

}  // namespace winnow::kernels::cpu

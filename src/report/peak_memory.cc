#include "report/peak_memory.h"

#include <sys/resource.h>

namespace winnow::report {

int64_t PeakResidentBytes() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return usage.ru_maxrss;  // bytes there, KiB everywhere else
#else
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
#endif
}

}  // namespace winnow::report

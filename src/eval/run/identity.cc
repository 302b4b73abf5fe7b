#include "eval/run/identity.h"

#include <sys/utsname.h>

#include "base/machine.h"
#include "base/thread_pool.h"

namespace winnow::eval {

report::Record MachineRecord(const std::string& cpu_target) {
  utsname system = {};
  uname(&system);
  return {{"cpu", CpuName()},
          {"cores", ThreadPool::DefaultThreads()},
          {"system", std::string(system.sysname) + " " + system.machine},
          {"target", cpu_target}};
}

}  // namespace winnow::eval

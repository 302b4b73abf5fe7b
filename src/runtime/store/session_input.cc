// Opening session files, and the options that they store.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "compression/registry.h"
#include "runtime/store/session_file.h"

namespace winnow::runtime {
namespace {

Error CannotRead(const std::string& name, const char* problem) {
  return {.message = name + ": cannot be read: " + problem, .code = ErrorCode::kFile};
}

}  // namespace

Result<SessionInput> SessionInput::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO is refused
  if (file < 0) return CannotRead(path, std::strerror(errno));
  return FromDescriptor(file, path);
}

Result<SessionInput> SessionInput::FromDescriptor(int file, std::string name) {
  SessionInput input;
  input.name = std::move(name);
  struct stat status;
  const bool found = fstat(file, &status) == 0;
  const int problem = found ? EINVAL : errno;
  if (!found || !S_ISREG(status.st_mode)) {
    close(file);
    return CannotRead(input.name, found ? "is not a regular file" : std::strerror(problem));
  }
  input.n_bytes = static_cast<uint64_t>(status.st_size);
  input.file.reset(fdopen(file, "rb"));
  if (input.file) return input;
  const Error error = CannotRead(input.name, std::strerror(errno));
  close(file);
  return error;
}

Result<SessionOptions> SessionOptionsFrom(const SessionFileInfo& info) {
  SessionOptions options;
  options.context = info.context;
  options.key_type = info.key_type;
  options.value_type = info.value_type;
  options.compression.size = info.size;
  options.compression.ratio = info.ratio;
  options.compression.memory_bytes = info.memory_bytes;
  options.compression.quality = info.quality;
  options.compression.prefill_chunk = info.prefill_chunk;
  if (info.method.empty()) return options;
  // As compression::WithDecode joins the two.
  constexpr std::string_view kThen = ", then ";
  const size_t then = info.method.find(kThen);
  WINNOW_ASSIGN(options.compression.method, compression::MakeMethod(info.method.substr(0, then)));
  if (then == std::string::npos) return options;
  WINNOW_ASSIGN(compression::MethodPtr decode,
                compression::MakeMethod(info.method.substr(then + kThen.size())));
  WINNOW_ASSIGN(options.compression.method,
                compression::WithDecode(options.compression.method, std::move(decode)));
  return options;
}

}  // namespace winnow::runtime

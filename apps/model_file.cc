#include "model_file.h"

#include "models/bundled.h"

namespace winnow::apps {

Result<std::shared_ptr<const gguf::File>> OpenModelFile(const std::string& name, Log& log) {
  if (name != kBundled) return gguf::File::Open(name);
  log.Info("using the small model that is part of winnow; for another, -m FILE");
  return gguf::File::View(models::Bundled(), name);
}

}  // namespace winnow::apps

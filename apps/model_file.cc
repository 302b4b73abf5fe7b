#include "model_file.h"

#include <utility>

#include "models/bundled.h"

namespace winnow::apps {
namespace {

void LogBundledModel(Log& log) {
  log.Info("using the small model that is part of winnow; for another, -m FILE");
}

}  // namespace

Result<std::shared_ptr<const gguf::File>> OpenModelFile(const std::string& name, Log& log) {
  if (name != kBundled) return gguf::File::Open(name);
  LogBundledModel(log);
  return gguf::File::View(models::Bundled(), name);
}

Result<Model> OpenModel(const std::string& name, ModelOptions options, Log& log) {
  if (name != kBundled) return Model::Open(name, options);
  LogBundledModel(log);
  options.error_profiles = models::BundledProfile();
  return Model::Open(models::Bundled(), name, options);
}

}  // namespace winnow::apps

#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "gguf/file.h"
#include "winnow/model.h"

namespace winnow::apps {

// Name of the bundled model, and the default of -m. A file of that name is ./bundled.
inline constexpr const char* kBundled = "bundled";
// Help of -m.
inline constexpr const char* kModelHelp =
    "model (GGUF; of a split one, the first part); 'bundled': the small one that is part of winnow";

// Opens the model; a note in the log says if it is the bundled one. Errors: see gguf::File::Open.
Result<std::shared_ptr<const gguf::File>> OpenModelFile(const std::string& name, Log& log);
// The same, ready to compute. Errors: see Model::Open.
Result<Model> OpenModel(const std::string& name, ModelOptions options, Log& log);

}  // namespace winnow::apps

#include "model/architecture.h"

#include <vector>

#include "model/model.h"

namespace winnow::model {
namespace {

using ArchitectureFunction = const Architecture& (*)();
constexpr ArchitectureFunction kArchitectures[] = {Falcon, Llama, Phi3, Qwen2, Qwen3};

}  // namespace

const Architecture* FindArchitecture(std::string_view name) {
  for (const ArchitectureFunction architecture : kArchitectures) {
    if (architecture().name == name) return &architecture();
  }
  return nullptr;
}

std::vector<std::string_view> SupportedArchitectures() {
  std::vector<std::string_view> names;
  for (const ArchitectureFunction architecture : kArchitectures) {
    names.push_back(architecture().name);
  }
  return names;
}

}  // namespace winnow::model

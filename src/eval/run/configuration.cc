#include "eval/run/configuration.h"

#include <algorithm>
#include <vector>

#include "compression/registry.h"

namespace winnow::eval {
namespace {

constexpr std::string_view kThen = ", then ";

std::string NormalizeOne(std::string_view text) {
  const auto spec = compression::ParseSpec(text);
  const auto methods = compression::Methods();
  const auto entry = std::find_if(methods.begin(), methods.end(), [&](const auto& method) {
    return spec && method.name == spec->name;
  });
  if (entry == methods.end()) return std::string(text);
  std::string all(entry->name);
  char separator = ':';
  for (const compression::Parameter& parameter : entry->parameters()) {
    const auto given =
        std::find_if(spec->values.begin(), spec->values.end(),
                     [&](const auto& value) { return value.first == parameter.name; });
    all += separator + parameter.name + "=" +
           (given == spec->values.end() ? parameter.default_value : given->second);
    separator = ',';
  }
  return all;
}

}  // namespace

std::string NormalizeConfiguration(std::string_view spec) {
  const size_t then = spec.find(kThen);
  if (then == std::string_view::npos) return NormalizeOne(spec);
  return NormalizeOne(spec.substr(0, then)) + std::string(kThen) +
         NormalizeOne(spec.substr(then + kThen.size()));
}

}  // namespace winnow::eval

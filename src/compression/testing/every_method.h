#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "compression/registry.h"

// The specs that tests of all methods run.
namespace winnow::compression::testing {

// Every registered method with its defaults; `custom`, which is composed by its parameters, in its
// first variant.
inline std::vector<std::string> MethodNames() {
  std::vector<std::string> specs;
  for (const MethodEntry& entry : Methods()) {
    specs.emplace_back(entry.name);
    if (entry.name == "custom") specs.back() += ":" + std::string(entry.variants.at(0));
  }
  return specs;
}

// The same, and the variants that the entries list.
inline std::vector<std::string> MethodsAndVariants() {
  std::vector<std::string> specs = MethodNames();
  for (const MethodEntry& entry : Methods()) {
    for (const std::string_view variant : entry.variants) {
      const std::string spec = std::string(entry.name) + ":" + std::string(variant);
      if (std::ranges::find(specs, spec) == specs.end()) specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace winnow::compression::testing

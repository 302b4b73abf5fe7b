#include "compression/registry.h"

#include <algorithm>
#include <utility>

#include "base/nearest.h"
#include "compression/forwarding_method.h"
#include "compression/methods/methods.h"

namespace winnow::compression {
namespace {

// A method with the spec it was made from.
class MethodWithSpec final : public ForwardingMethod {
 public:
  MethodWithSpec(MethodPtr method, std::string spec) : ForwardingMethod(std::move(method)) {
    traits_.spec = std::move(spec);
  }
};

Result<const MethodEntry*> FindEntry(const std::string& name) {
  std::vector<std::string_view> names;
  for (const MethodEntry& entry : Methods()) {
    if (entry.name == name) return &entry;
    names.push_back(entry.name);
  }
  const std::string_view nearest = NearestWord(name, names);
  std::string known;
  for (const std::string_view one : names) {
    known += (known.empty() ? "" : ", ") + std::string(one);
  }
  return Error{"no method '" + name + "'" +
               (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?") +
               "; known methods: " + known};
}

}  // namespace

std::span<const MethodEntry> Methods() {
  // One line per method.
  // clang-format off
  static const std::vector<MethodEntry> entries = {
      methods::Full(),
      methods::Local(),
      methods::Streaming(),
      methods::LmInfinite(),
      methods::H2o(),
      methods::Tova(),
      methods::Scissorhands(),
      methods::Roco(),
      methods::Cam(),
      methods::SnapKv(),
      methods::PyramidKv(),
      methods::PyramidInfer(),
      methods::Cake(),
      methods::AdaKv(),
      methods::Twilight(),
      methods::TreeKv(),
      methods::ReFreeKv(),
      methods::D2o(),
      methods::Hbw(),
      methods::Ems(),
      methods::KeyDiff(),
      methods::KNorm(),
      methods::LagKv(),
      methods::Rkv(),
      methods::Caote(),
      methods::CriticalKv(),
      methods::ExpectedAttention(),
      methods::TriAttention(),
      methods::Compactor(),
      methods::DefensiveKv(),
      methods::KvZip(),
      methods::AttentionMatching(),
      methods::Random(),
      methods::Strided(),
      methods::Winnow(),
      methods::Custom(),
  };
  // clang-format on
  return entries;
}

Result<MethodPtr> MakeMethod(std::string_view text) {
  WINNOW_ASSIGN(const Spec spec, ParseSpec(text));
  WINNOW_ASSIGN(const MethodEntry* entry, FindEntry(spec.name));
  WINNOW_ASSIGN(MethodPtr method, entry->make(spec));
  return MethodPtr(std::make_shared<MethodWithSpec>(std::move(method), std::string(text)));
}

std::string ListNames(bool (*fits)(const Method& method)) {
  std::string names;
  for (const MethodEntry& entry : Methods()) {
    const auto method = MakeMethod(entry.name);
    if (!method || !fits(**method)) continue;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return names;
}

Result<Promise> MethodPromise(std::string_view text, int64_t budget) {
  WINNOW_ASSIGN(const Spec spec, ParseSpec(text));
  WINNOW_ASSIGN(const MethodEntry* entry, FindEntry(spec.name));
  return entry->promise(spec, budget);
}

}  // namespace winnow::compression

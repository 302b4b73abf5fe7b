#include "compression/registry.h"

#include <algorithm>
#include <utility>

#include "base/nearest.h"
#include "compression/methods/methods.h"

namespace winnow::compression {
namespace {

// A method that says how it was asked for.
class Specified final : public Method {
 public:
  Specified(MethodPtr method, std::string spec)
      : method_(std::move(method)), traits_(method_->traits()) {
    traits_.spec = std::move(spec);
  }

  const Traits& traits() const override { return traits_; }
  Needs needs() const override { return method_->needs(); }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    method_->Decide(call, plans);
  }
  std::unique_ptr<Memory> MakeMemory() const override { return method_->MakeMemory(); }
  void ObserveReplay(const LayerCall& call) const override { method_->ObserveReplay(call); }
  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    method_->DecideAll(call, plans);
  }
  int64_t MaxSlots(int64_t budget, int64_t n) const override {
    return method_->MaxSlots(budget, n);
  }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return method_->TotalSlots(budget, n, n_layers);
  }
  int64_t TotalRows(int64_t budget, int64_t n, int n_layers) const override {
    return method_->TotalRows(budget, n, n_layers);
  }
  int64_t LayerSlots(int layer, int n_layers, int64_t budget, int64_t n) const override {
    return method_->LayerSlots(layer, n_layers, budget, n);
  }
  int64_t LayerRows(int layer, int n_layers, int64_t budget, int64_t n) const override {
    return method_->LayerRows(layer, n_layers, budget, n);
  }
  Sizes DecodeSizes(int64_t budget, int64_t n_prompt, int64_t n, int n_layers) const override {
    return method_->DecodeSizes(budget, n_prompt, n, n_layers);
  }

 private:
  MethodPtr method_;
  Traits traits_;
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
               "; there are " + known};
}

}  // namespace

std::span<const MethodEntry> Methods() {
  // A line for each method.
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
  return MethodPtr(std::make_shared<Specified>(std::move(method), std::string(text)));
}

Result<Promise> MethodPromise(std::string_view text, int64_t budget) {
  WINNOW_ASSIGN(const Spec spec, ParseSpec(text));
  WINNOW_ASSIGN(const MethodEntry* entry, FindEntry(spec.name));
  return entry->promise(spec, budget);
}

}  // namespace winnow::compression

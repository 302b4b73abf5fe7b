#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "compression/method.h"

namespace winnow::compression {

// Forwards every call to another method. Derived classes override what they change.
class ForwardingMethod : public Method {
 public:
  explicit ForwardingMethod(MethodPtr method)
      : method_(std::move(method)), traits_(method_->traits()) {}

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
  Sizes DecodeLayerSizes(int layer, int n_layers, int64_t budget, int64_t n) const override {
    return method_->DecodeLayerSizes(layer, n_layers, budget, n);
  }

 protected:
  MethodPtr method_;
  Traits traits_;  // the wrapped method's; derived classes may change them
};

}  // namespace winnow::compression

#include <algorithm>
#include <utility>

#include "compression/forwarding_method.h"
#include "compression/numbers.h"
#include "compression/registry.h"
#include "compression/taps.h"

namespace winnow::compression {
namespace {

std::string_view ToString(PositionMode mode) {
  switch (mode) {
    case PositionMode::kOriginal:
      return "original";
    case PositionMode::kReassigned:
      return "reassigned";
    case PositionMode::kCapped:
      return "capped";
    case PositionMode::kText:
      break;
  }
  return "original, of keys stored before RoPE";
}

// The traits of a pair that passed WithDecode's checks. Storage is the same for both; attention and
// the prompt's decisions are those of the prefill method.
Traits Joined(const Traits& prefill, const Traits& decode) {
  Traits both = prefill;
  both.spec += ", then " + decode.spec;
  both.decisions.evicts_in_decode = true;
  both.decisions.shares_threads |= decode.decisions.shares_threads;
  // If the prefill method finds its own size, decode holds that size: no budget is needed.
  both.budget = {.needed = prefill.budget.needed || !prefill.decisions.Evicts(Phase::kPrefill),
                 .held = prefill.budget.held && decode.budget.held,
                 .min = std::max(prefill.budget.min, decode.budget.min)};
  return both;
}

// Prefill by one method, decode by another. Both keep state from the start: the decode method
// observes the prompt too, under a budget that leaves it nothing to evict.
class TwoMethods final : public ForwardingMethod {
 public:
  TwoMethods(MethodPtr prefill, MethodPtr decode)
      : ForwardingMethod(std::move(prefill)), decode_(std::move(decode)), needs_(method_->needs()) {
    traits_ = Joined(method_->traits(), decode_->traits());
    const Needs more = decode_->needs();
    decode_state_offset_ = needs_.state;
    size_offset_ = decode_state_offset_.n_layer_numbers + more.state.n_layer_numbers;
    needs_.state += more.state;
    ++needs_.state.n_layer_numbers;
    needs_.prefill = Join(needs_.prefill, more.prefill);
    needs_.decode = more.decode;
  }

  Needs needs() const override { return needs_; }
  int64_t MaxSlots(int64_t budget, int64_t n) const override {
    return std::max(method_->MaxSlots(budget, n), decode_->MaxSlots(budget, n));
  }
  Sizes DecodeSizes(int64_t budget, int64_t n_prompt, int64_t n, int n_layers) const override {
    Sizes sizes;
    for (int layer = 0; layer < n_layers; ++layer) {
      const int64_t held = MaxHeld(layer, n_layers, budget, n_prompt);
      const Sizes own = decode_->DecodeLayerSizes(layer, n_layers, held, n);
      sizes.layer_slots = std::max(sizes.layer_slots, own.layer_slots);
      sizes.layer_rows = std::max(sizes.layer_rows, own.layer_rows);
      sizes.total_slots += own.layer_slots;
      sizes.total_rows += own.layer_rows;
    }
    if (traits_.budget.held && budget > 0) {
      sizes.total_rows = std::min(sizes.total_rows, budget * n_layers);
      if (!traits_.storage.shared_rows) sizes.total_slots = sizes.total_rows;
    }
    return sizes;
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    double& held = call.layer_number(size_offset_);
    if (call.phase == Phase::kDecode) {
      if (held == 0) SetHeld(call);
      LayerCall second = ForDecodeMethod(call, *call.taps);
      second.budget = CountFrom(held);
      decode_->Decide(second, plans);
      return;
    }
    if (call.pass == 0) {
      held = 0;
      LayerCall second = ForDecodeMethod(call, Read(decode_->needs().prefill, call));
      for (int head = 0; head < call.n_kv_heads(); ++head) {
        second.budget = std::max(second.budget, call.n_slots(head));
      }
      // The first method may have evicted entries: count all tokens seen, so that the second does
      // not take the prompt for more than it may keep.
      second.budget = std::max(second.budget, call.n_seen);
      PlanList not_carried_out;  // for methods that evict without a budget
      decode_->Decide(second, not_carried_out);
    }
    method_->Decide(call.WithTaps(Read(method_->needs().prefill, call)), plans);
  }

 private:
  const kernels::Taps& Read(const kernels::TapSpec& wanted, const LayerCall& call) const {
    return ReduceTapsTo(wanted, needs_.prefill, *call.taps, call.group(),
                        call.scratch.reduced[static_cast<size_t>(wanted.reduce)]);
  }

  LayerCall ForDecodeMethod(const LayerCall& call, const kernels::Taps& taps) const {
    LayerCall own = call.WithTaps(taps);
    own.first += decode_state_offset_;
    own.memory = nullptr;  // belongs to the prefill method
    return own;
  }

  // Sets the size that every layer holds while generating, in rows per KV head. The first layer of
  // the first decode call does it for all layers, while their entries are as the prompt left them.
  void SetHeld(const LayerCall& call) const {
    const int64_t min = decode_->traits().budget.min;
    int64_t sum = 0;
    for (int layer = 0; layer < call.n_layers; ++layer) {
      const int64_t held = std::max(LeftByPrefill(call, layer), min);
      call.layer_number(layer, size_offset_) = static_cast<double>(held);
      sum += held;
    }
    const int64_t max = call.budget * call.n_layers;
    if (!traits_.budget.held || call.budget == 0 || sum <= max) return;
    // Layers raised to the minimum take from the others, in proportion to what each has above it.
    const int64_t layers_min = min * call.n_layers;
    for (int layer = 0; layer < call.n_layers; ++layer) {
      double& held = call.layer_number(layer, size_offset_);
      const int64_t above = CountFrom(held) - min;
      held = static_cast<double>(min + above * (max - layers_min) / (sum - layers_min));
    }
  }

  // The size a layer holds in decode: the rows that prefill left of the prompt, so that a pyramid
  // stays one and a size found by the method is held. The budget instead, if the prefill method
  // does not compress, or if it fills a budget and left the layer whole.
  int64_t LeftByPrefill(const LayerCall& call, int layer) const {
    if (!traits_.decisions.Evicts(Phase::kPrefill)) return call.budget;
    const int64_t n_new = layer == call.layer ? call.n_new : 0;
    int64_t n_rows = 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      n_rows += call.cache.n_rows(layer, head) - n_new;
    }
    const int64_t mean = n_rows / call.n_kv_heads();
    const bool whole = mean >= call.n_seen - call.n_new;
    const bool found = !method_->traits().budget.needed;  // a size of its own, held even if whole
    return call.budget > 0 && whole && !found ? call.budget : mean;
  }

  // An upper bound of a layer's size in decode, after a prompt that ended n_prompt tokens after the
  // beginning of the text.
  int64_t MaxHeld(int layer, int n_layers, int64_t budget, int64_t n_prompt) const {
    const bool grows = budget > 0 && n_prompt <= budget && method_->traits().budget.needed;
    if (!traits_.decisions.Evicts(Phase::kPrefill) || grows) return budget;
    return std::max(method_->LayerRows(layer, n_layers, budget, n_prompt),
                    decode_->traits().budget.min);
  }

  MethodPtr decode_;
  Needs needs_;
  cache::StateShape decode_state_offset_;
  int size_offset_ = 0;
};

// Whether two methods can share a cache. Errors: what differs in their storage.
Result<void> CheckAgree(const StoragePolicy& first, const StoragePolicy& second) {
  if (first.positions != second.positions) {
    return Error{"the first keeps positions " + std::string(ToString(first.positions)) +
                 ", the second " + std::string(ToString(second.positions)) +
                 "; they must agree (some methods have a parameter 'positions')"};
  }
  if (first.distance_cap != second.distance_cap) {
    return Error{"distances are capped at " + std::to_string(first.distance_cap) + " and " +
                 std::to_string(second.distance_cap) + "; they must agree"};
  }
  if (first.shared_rows != second.shared_rows) {
    return Error{"one of them shares rows between entries, the other does not"};
  }
  if (second.bias_column >= 0) {
    return Error{
        "the second sets biases, which only the prefill method may; disable them with its "
        "parameters (winnow methods NAME)"};
  }
  if (first.per_query_head != second.per_query_head) {
    return Error{
        "one of them selects entries per query head, the other per KV head; set the same parameter "
        "'heads' for both"};
  }
  return {};
}

}  // namespace

Result<MethodPtr> WithDecode(MethodPtr prefill, MethodPtr decode) {
  const Traits& first = prefill->traits();
  const Traits& second = decode->traits();
  const std::string both = first.spec + ", then " + second.spec + ": ";
  if (!second.decisions.evicts_in_decode) {
    return Error{both + second.spec + " does not evict while generating"};
  }
  if (!second.budget.HasEffect()) {
    return Error{both + second.spec +
                 " finds its own size and ignores the budget in decode; expected a method with a "
                 "budget (winnow methods)"};
  }
  if (const auto agree = CheckAgree(first.storage, second.storage); !agree) {
    return Error{both + agree.error().message};
  }
  const Needs more = decode->needs();
  if (!CanServe(prefill->needs().prefill, more.prefill)) {
    return Error{both +
                 "they need different reductions over the query heads, which one pass of attention "
                 "cannot give; set the same parameter 'reduce' for both"};
  }
  if ((first.attention.Selects() || second.attention.Selects()) && more.decode.any()) {
    return Error{both +
                 "a method that selects inside attention leaves no attention weights to evict by"};
  }
  return MethodPtr(std::make_shared<TwoMethods>(std::move(prefill), std::move(decode)));
}

}  // namespace winnow::compression

// Runs methods, and pairs of them, over a small cache with arbitrary attention, keys and values:
// NaN, infinities, zeros, huge and equal numbers. Two runs must decide alike, keep only what a plan
// may keep, and hold the method's promises.
//
// The input chooses method, parameters (those that `winnow methods` lists), shapes, calls, and the
// tables from which attention and vectors are looked up.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "compression/registry.h"
#include "compression/testing/harness.h"
#include "fuzzed_data.h"

namespace {

using winnow::compression::MethodEntry;
using winnow::compression::MethodPtr;
using winnow::compression::Parameter;
using winnow::compression::Position;
using winnow::compression::testing::Cell;
using winnow::compression::testing::Harness;
using winnow::compression::testing::HarnessConfig;

constexpr int64_t kMaxBudget = 96;

// Draws a value of a parameter: mostly small, sometimes at an end of its range.
std::string DrawValue(const Parameter& parameter, FuzzedData& input) {
  if (parameter.type == "switch") return input.ConsumeBool() ? "true" : "false";
  if (!parameter.choices.empty()) {
    std::string value =
        !input.ConsumeBool()
            ? parameter
                  .choices[input.ConsumeIntegralInRange<size_t>(0, parameter.choices.size() - 1)]
            : parameter.default_value;
    if (parameter.type == "part" && input.ConsumeBool()) {
      value += "(" + std::to_string(input.ConsumeIntegralInRange<int>(0, 40)) + ")";
    }
    return value;
  }
  const double min = parameter.range.min;
  const double max = parameter.range.max;
  const int kind = input.ConsumeIntegralInRange<int>(0, 7);
  if (kind == 0) return winnow::compression::ShortestText(min);
  if (kind == 1) return winnow::compression::ShortestText(max);
  if (kind == 2) return parameter.default_value;
  if (parameter.type == "number") {
    const double share = input.ConsumeProbability();
    return winnow::compression::ShortestText(
        std::clamp(min + share * std::min(max - min, 4.0), min, max));
  }
  const auto low = static_cast<int64_t>(min);
  const auto high = static_cast<int64_t>(std::min(max, min + 40));
  std::string value = std::to_string(input.ConsumeIntegralInRange<int64_t>(low, high));
  if (parameter.type == "integers") {
    value += "/" + std::to_string(input.ConsumeIntegralInRange<int64_t>(low, high));
  }
  return value;
}

// A method from a spec "name:parameter=value,...", or its error.
winnow::Result<MethodPtr> MethodFrom(FuzzedData& input) {
  const auto methods = winnow::compression::Methods();
  const MethodEntry& entry = methods[input.ConsumeIntegralInRange<size_t>(0, methods.size() - 1)];
  std::string spec(entry.name);
  char separator = ':';
  for (const Parameter& parameter : entry.parameters()) {
    if (input.ConsumeBool()) continue;
    spec += separator + parameter.name + "=" + DrawValue(parameter, input);
    separator = ',';
  }
  return winnow::compression::MakeMethod(spec);
}

double NumberFrom(uint8_t byte) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double odd[] = {
      std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity, 3e38, 1e300, -1, 1e-310, 0};
  return byte < std::size(odd) ? odd[byte] : static_cast<double>(byte / 4) / 64;
}

using Table = std::array<double, 64>;

Table TableFrom(FuzzedData& input) {
  const std::vector<uint8_t> bytes = input.ConsumeBytes(16);
  Table table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = bytes.empty() ? 0.25 : NumberFrom(bytes[i % bytes.size()]);
  }
  return table;
}

double Look(const Table& table, std::initializer_list<int64_t> at) {
  uint64_t mixed = 1;
  for (const int64_t part : at) mixed = winnow::Rng(mixed ^ static_cast<uint64_t>(part)).Next();
  return table[mixed % table.size()];
}

std::unique_ptr<Harness> HarnessFrom(const MethodPtr& method, const HarnessConfig& config,
                                     const Table& vectors) {
  auto harness = std::make_unique<Harness>(method, config);
  const auto look = [vectors, dim = config.dim](int kind) {
    return [vectors, dim, kind](int layer, int kv_head, Position position) {
      std::vector<float> vector;
      for (int i = 0; i < dim; ++i) {
        const double number = Look(vectors, {kind, layer, kv_head, position, i});
        // A number that overflows a float becomes infinite.
        vector.push_back(
            std::abs(number) > 3.4e38
                ? static_cast<float>(std::copysign(std::numeric_limits<double>::infinity(), number))
                : static_cast<float>(number));
      }
      return vector;
    };
  };
  harness->SetKeys(look(0));
  harness->SetValues(look(1));
  return harness;
}

void CheckAlike(const Harness& a, const Harness& b, const HarnessConfig& config) {
  for (int layer = 0; layer < config.n_layers; ++layer) {
    for (int head = 0; head < config.n_kv_heads; ++head) {
      const std::vector<Position> kept = a.Kept(layer, head);
      WINNOW_CHECK(kept == b.Kept(layer, head));
      WINNOW_CHECK(static_cast<int64_t>(kept.size()) <= a.n_seen());
    }
  }
}

// No head holds more than the method announced for the text so far.
void CheckSizes(const Harness& harness, const HarnessConfig& config) {
  const int64_t max = harness.method().MaxSlots(config.budget, harness.n_seen());
  for (int layer = 0; layer < config.n_layers; ++layer) {
    for (int head = 0; head < config.n_kv_heads; ++head) {
      WINNOW_CHECK(static_cast<int64_t>(harness.Kept(layer, head).size()) <= max);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedData input(data, size);
  winnow::Result<MethodPtr> method = MethodFrom(input);
  if (!method) return 0;
  const bool pair = input.ConsumeIntegralInRange<int>(0, 3) == 0;
  if (pair) {
    const winnow::Result<MethodPtr> second = MethodFrom(input);
    if (!second) return 0;
    method = winnow::compression::WithDecode(*method, *second);
    if (!method) return 0;
  }
  const auto& traits = (*method)->traits();
  if (traits.budget.min > kMaxBudget || (*method)->needs().state.n_columns > 64) return 0;
  HarnessConfig config = {.n_layers = input.ConsumeIntegralInRange<int>(1, 3),
                          .n_kv_heads = input.ConsumeIntegralInRange<int>(1, 3),
                          .dim = 4};
  config.n_q_heads = config.n_kv_heads * input.ConsumeIntegralInRange<int>(1, 2);
  const bool unlimited = !traits.budget.needed && input.ConsumeBool();
  config.budget =
      unlimited ? 0 : input.ConsumeIntegralInRange<int64_t>(traits.budget.min, kMaxBudget);
  const Table weights = TableFrom(input);
  const Table vectors = TableFrom(input);
  const auto first = HarnessFrom(*method, config, vectors);
  const auto second = HarnessFrom(*method, config, vectors);
  const auto weigh = [&](const Cell& cell) {
    return Look(weights, {cell.layer, cell.q_head, cell.query, cell.position});
  };
  for (int call = 0; call < 6 && (call == 0 || input.remaining_bytes() > 0); ++call) {
    const bool prefill = call == 0 || input.ConsumeBool();
    const int64_t n = input.ConsumeIntegralInRange<int64_t>(1, prefill ? 60 : 12);
    for (Harness* harness : {first.get(), second.get()}) {
      if (prefill) {
        harness->Prefill(n, weigh);
      } else {
        for (int64_t i = 0; i < n; ++i) harness->Decode(weigh);
      }
    }
    CheckAlike(*first, *second, config);
    if (prefill && traits.decisions.Evicts(winnow::compression::Phase::kPrefill) &&
        config.budget > 0)
      CheckSizes(*first, config);
  }
  return 0;
}

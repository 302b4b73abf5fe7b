#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compression/method.h"
#include "compression/parameters.h"

namespace winnow::compression {

// What eviction may do to the keys and values of entries that stay.
enum class Merging {
  kNone,
  kHull,           // they become means of merged rows, with non-negative weights
  kDirectionHull,  // likewise; of keys the directions are merged, not the keys themselves
  kAny,            // nothing is promised
};

// What a method guarantees about every KV head under a budget, once the text is longer than it. The
// conformance tests check it for every method (tests/conformance).
struct Promise {
  bool exact = false;  // min(tokens, budget) entries; more only in decode without eviction
  int64_t sinks = 0;   // first tokens that are always kept
  int64_t recent = 0;  // newest tokens that are always kept
  Merging merging = Merging::kNone;
  bool prompt_by_steps = true;  // for methods that evict in decode: reading a prompt in chunks of
                                // one token ends in the same state as decode steps
};

// A method as `winnow methods` lists it.
struct MethodEntry {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view source;   // paper, code
  std::vector<Parameter> (*parameters)() = nullptr;
  Result<MethodPtr> (*make)(const Spec& spec) = nullptr;
  Result<Promise> (*promise)(const Spec& spec, int64_t budget) = nullptr;
  // Parameters that change what a method does, "sinks=4,positions=reassigned": the tests of all
  // methods run with them too.
  std::vector<std::string_view> variants = {};
};

// All methods, in the order of the documentation.
std::span<const MethodEntry> Methods();

// The method of a spec, e.g. "snapkv:window=16". Errors: unknown name (suggests the nearest, lists
// all), unknown parameter, value out of range.
Result<MethodPtr> MakeMethod(std::string_view spec);

// The methods whose default form fits, as "a, b, c".
std::string ListNames(bool (*fits)(const Method& method));

// Prefill by one method, decode by another (--kv-decode). The decode method's scores start with the
// prompt. Errors: the two cannot share a cache or a pass of attention; `decode` does not evict in
// decode, or ignores the budget.
Result<MethodPtr> WithDecode(MethodPtr prefill, MethodPtr decode);

// What the method of a spec guarantees under a budget. Errors: as in MakeMethod.
Result<Promise> MethodPromise(std::string_view spec, int64_t budget);

// A promise of the budget only.
template <class Config>
Promise PromisesBudget(const Config&, int64_t) {
  return {};
}

// A registry entry for a config with Visit, its factory Result<MethodPtr>(const Config&) and its
// promise.
template <class Config, Result<MethodPtr> (*Factory)(const Config&),
          Promise (*Promises)(const Config&, int64_t budget) = PromisesBudget<Config>>
MethodEntry Entry(std::string_view name, std::string_view summary, std::string_view source,
                  const std::vector<std::string_view>& variants = {}) {
  return {.name = name,
          .summary = summary,
          .source = source,
          .parameters = [] { return ListParameters<Config>(); },
          .make = [](const Spec& spec) -> Result<MethodPtr> {
            WINNOW_ASSIGN(const Config config, ReadConfig<Config>(spec));
            return Factory(config);
          },
          .promise = [](const Spec& spec, int64_t budget) -> Result<Promise> {
            WINNOW_ASSIGN(const Config config, ReadConfig<Config>(spec));
            return Promises(config, budget);
          },
          .variants = variants};
}

}  // namespace winnow::compression

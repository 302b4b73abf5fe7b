#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compression/method.h"
#include "compression/parameters.h"

namespace winnow::compression {

// What every KV head holds under a budget, once a text is longer. Tests hold every method to it
// (tests/conformance).
struct Promise {
  bool exact = false;           // min(tokens, budget) entries, or as many more as were generated
  int64_t sinks = 0;            // first tokens that are there
  int64_t recent = 0;           // newest tokens that are there
  bool merges = false;          // what goes may change keys or values that stay
  bool prompt_by_steps = true;  // of methods that evict in decode: a prompt in chunks of one token
                                // ends as decode steps do
};

// A method as `winnow methods` lists it.
struct MethodEntry {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view source;   // paper, code
  std::vector<Parameter> (*parameters)() = nullptr;
  Result<MethodPtr> (*make)(const Spec& spec) = nullptr;
  Result<Promise> (*promise)(const Spec& spec, int64_t budget) = nullptr;
  // Parameters that change what a method does, "sinks=4,positions=reassigned": what holds for every
  // method is tested with them too.
  std::vector<std::string_view> variants = {};
};

// All methods, in the order of the documentation.
std::span<const MethodEntry> Methods();

// A method from its spec, e.g. "snapkv:window=16". Errors: unknown name (lists the nearest and
// all), unknown parameter, value out of range.
Result<MethodPtr> MakeMethod(std::string_view spec);

// Prefill by one method, decode by another (--kv-decode): the second's scores start with the
// prompt. Error: the two need different position modes or stored forms; `decode` does not evict in
// decode.
Result<MethodPtr> WithDecode(MethodPtr prefill, MethodPtr decode);

// What the method of a spec promises under a budget. Errors: as MakeMethod.
Result<Promise> MethodPromise(std::string_view spec, int64_t budget);

// A promise of nothing but the budget.
template <class Config>
Promise PromisesBudget(const Config&, int64_t) {
  return {};
}

// An entry for a config with Visit, a factory Result<MethodPtr>(const Config&) and what it
// promises.
template <class Config, Result<MethodPtr> (*Factory)(const Config&),
          Promise (*Promises)(const Config&, int64_t budget) = PromisesBudget<Config>>
MethodEntry Entry(std::string_view name, std::string_view summary, std::string_view source,
                  std::vector<std::string_view> variants = {}) {
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
          .variants = std::move(variants)};
}

}  // namespace winnow::compression

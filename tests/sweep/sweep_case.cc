#include "sweep_case.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "compression/registry.h"
#include "gguf/tensor_type.h"

namespace winnow::sweep {
namespace {

using compression::MethodEntry;
using compression::Parameter;

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}

  bool Chance(double share) { return rng_.Uniform() < share; }
  // In [min, max].
  int64_t Between(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(max - min + 1)));
  }
  template <class T>
  const T& Pick(const std::vector<T>& values) {
    return values[rng_.Below(values.size())];
  }

  // Mostly near the lower end, which suits small models; seldom an end of the range.
  std::string Integer(const Parameter& p) {
    const auto min = static_cast<int64_t>(p.range.min);
    const auto max = static_cast<int64_t>(p.range.max);
    if (Chance(0.05)) return std::to_string(Chance(0.5) ? min : max);
    return std::to_string(Between(min, std::min(max, min + 40)));
  }
  std::string Number(const Parameter& p) {
    if (Chance(0.1)) return compression::ShortestText(Chance(0.5) ? p.range.min : p.range.max);
    const double width = std::min(p.range.max - p.range.min, Chance(0.5) ? 2.0 : 100.0);
    return compression::ShortestText(p.range.min + width * rng_.Uniform());
  }
  std::string Value(const Parameter& p) {
    if (p.type == "integer") return Integer(p);
    if (p.type == "number") return Number(p);
    if (p.type == "switch") return Chance(0.5) ? "true" : "false";
    if (!p.choices.empty()) return Pick(p.choices);
    std::string list = Integer(p);
    for (int64_t n = Between(0, 2); n > 0; --n) list += "/" + Integer(p);
    return list;
  }

  // A spec that the registry accepts. Some draws are refused because their parameters conflict.
  std::string Method() {
    for (int attempt = 0; attempt < 50; ++attempt) {
      const auto methods = compression::Methods();
      const MethodEntry& entry = methods[rng_.Below(methods.size())];
      std::string spec(entry.name);
      char separator = ':';
      const double share = Chance(0.3) ? 0 : 0.4;
      for (const Parameter& parameter : entry.parameters()) {
        if (!Chance(share)) continue;
        spec += separator + parameter.name + "=" + Value(parameter);
        separator = ',';
      }
      if (compression::MakeMethod(spec).has_value()) return spec;
    }
    return "streaming";
  }

 private:
  Rng rng_;
};

}  // namespace

Case MakeCase(uint64_t seed) {
  Draw draw(seed);
  Case c;
  c.seed = seed;
  c.form =
      draw.Pick<std::string>({"llama", "llama", "llama", "qwen2", "qwen3", "falcon-40b", "phi3"});
  c.n_layers = static_cast<int>(draw.Between(1, 5));
  c.n_kv_heads = draw.Pick<int>({1, 2, 4});
  c.dim = draw.Pick<int>({16, 16, 32});
  c.weights = draw.Pick<gguf::TensorType>(
      {gguf::TensorType::kF32, gguf::TensorType::kF16, gguf::TensorType::kQ8_0});
  std::vector<kernels::TensorType> types = {kernels::TensorType::kF16, kernels::TensorType::kF32,
                                            kernels::TensorType::kBF16};
  if (c.dim == 32) {
    types.push_back(kernels::TensorType::kQ8_0);
    types.push_back(kernels::TensorType::kQ4_0);
  }
  c.key_type = draw.Pick(types);
  c.value_type = draw.Chance(0.7) ? c.key_type : draw.Pick(types);

  int64_t min = 1;
  bool needs_budget = false;
  bool budget_has_effect = false;
  if (draw.Chance(0.95)) {
    c.method = draw.Method();
    compression::MethodPtr method = compression::MakeMethod(c.method).value();
    if (draw.Chance(0.35)) {
      const std::string decode = draw.Method();
      const auto both = compression::WithDecode(method, compression::MakeMethod(decode).value());
      if (both) {
        c.decode = decode;
        method = *both;
      }
    }
    min = method->traits().budget.min;
    needs_budget = method->traits().budget.needed;
    budget_has_effect = needs_budget || method->traits().budget.held;
  }
  c.context = draw.Pick<int64_t>({60, 128, 300, 300, 700});
  c.chunk = draw.Chance(0.6) ? 0 : draw.Pick<int64_t>({1, 2, 7, 16, 33, 64, 200});
  c.row_block = draw.Chance(0.7) ? 512 : draw.Between(1, 40);
  c.reserve_tokens = draw.Pick<int64_t>({256, 256, 0, 10, 40});

  const int64_t budget =
      draw.Chance(0.03) ? draw.Between(1, min) : std::max(min, draw.Between(1, 90));
  const double kind = draw.Chance(0.5) ? 0 : 1;
  if (!budget_has_effect || draw.Chance(0.4)) {
    if (needs_budget || draw.Chance(0.6)) {
      // The bytes of `budget` tokens in all layers, times 1 to 4.
      const int64_t row_bytes =
          gguf::RowBytes(c.key_type, c.dim) + gguf::RowBytes(c.value_type, c.dim) + 16;
      const auto more = static_cast<double>(draw.Between(100, 400)) / 100;
      c.memory_bytes = static_cast<int64_t>(
          more * static_cast<double>(budget * c.n_layers * c.n_kv_heads * row_bytes));
    }
  } else if (needs_budget || draw.Chance(0.5)) {
    if (kind == 0) {
      c.size = budget;
    } else {
      c.ratio = static_cast<double>(draw.Between(1, 100)) / 100;
    }
  }
  c.n_threads = static_cast<int>(draw.Between(1, 3));
  if (draw.Chance(0.25)) c.other_threads = c.n_threads == 1 ? 3 : 1;
  c.together = draw.Chance(0.25);
  for (int64_t n = draw.Between(1, 5); n > 0; --n) {
    Turn turn;
    if (!c.turns.empty()) {
      turn.start = draw.Pick<Turn::Start>({Turn::Start::kContinue, Turn::Start::kContinue,
                                           Turn::Start::kContinue, Turn::Start::kFork,
                                           Turn::Start::kTruncate, Turn::Start::kReset});
    }
    turn.n_prompt =
        static_cast<int>(draw.Chance(0.1) ? 0 : draw.Between(1, draw.Chance(0.5) ? 40 : 250));
    turn.n_generate = static_cast<int>(draw.Between(0, draw.Chance(0.7) ? 12 : 120));
    c.turns.push_back(turn);
  }
  return c;
}

std::string Describe(const Case& c) {
  std::string text = c.form + " " + std::to_string(c.n_layers) + " layers " +
                     std::to_string(c.n_kv_heads) + " KV heads of " + std::to_string(c.dim) +
                     " weights " + std::string(gguf::GetTypeInfo(c.weights).name) + ", -c " +
                     std::to_string(c.context) + " -ctk " +
                     std::string(gguf::GetTypeInfo(c.key_type).name) + " -ctv " +
                     std::string(gguf::GetTypeInfo(c.value_type).name) + " -ub " +
                     std::to_string(c.row_block) + " -t " + std::to_string(c.n_threads);
  text += " --kv-method " + (c.method.empty() ? "full" : c.method);
  if (!c.decode.empty()) text += " --kv-decode " + c.decode;
  if (c.size > 0) text += " --kv-size " + std::to_string(c.size);
  if (c.ratio > 0) text += " --kv-ratio " + compression::ShortestText(c.ratio);
  if (c.memory_bytes > 0) {
    text += " --kv-memory " + std::to_string(c.memory_bytes) + " (reserve " +
            std::to_string(c.reserve_tokens) + ")";
  }
  if (c.chunk > 0) text += " --prefill-chunk " + std::to_string(c.chunk);
  if (c.together) text += ", together with a fork";
  text += ", turns";
  for (const Turn& turn : c.turns) {
    static constexpr const char* kStarts[] = {" ", " reset ", " truncate ", " fork "};
    text += kStarts[static_cast<int>(turn.start)] + std::to_string(turn.n_prompt) + "+" +
            std::to_string(turn.n_generate);
  }
  return text;
}

}  // namespace winnow::sweep

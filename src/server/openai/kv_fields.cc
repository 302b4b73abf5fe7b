#include "server/openai/kv_fields.h"

#include <string_view>

#include "base/byte_size.h"
#include "compression/registry.h"
#include "runtime/budget/compression_settings.h"

namespace winnow::server {
namespace {

// 268435456 or "256M". nullopt: neither.
std::optional<int64_t> BytesIn(const report::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value.data)) {
    return *integer > 0 ? std::optional(*integer) : std::nullopt;
  }
  const auto* text = std::get_if<std::string>(&value.data);
  return text == nullptr ? std::nullopt : ParseByteSize(*text);
}

// Reads the budget, which replaces the default. False: the request names none.
bool ReadBudget(Fields& fields, Compression& kv) {
  constexpr double kSmallestRatio = 1e-9;
  const auto size = fields.Integer("kv_size", 1);
  const auto ratio = fields.Number("kv_ratio", kSmallestRatio, 1);
  std::optional<int64_t> memory;
  if (const report::Value* value = fields.Find("kv_memory")) {
    memory = BytesIn(*value);
    if (!memory) fields.Fail("kv_memory", "expected bytes, such as 268435456 or \"256M\"");
  }
  const int n_given = (size ? 1 : 0) + (ratio ? 1 : 0) + (memory ? 1 : 0);
  if (n_given == 0) return false;
  if (n_given > 1) {
    fields.Fail(size ? "kv_size" : "kv_ratio", "give only one of kv_size, kv_ratio and kv_memory");
  }
  kv.size = size.value_or(0);
  kv.ratio = ratio.value_or(0);
  kv.memory_bytes = memory.value_or(0);
  return true;
}

// Whether the method uses a budget in entries. True for unknown methods, whose error comes later.
bool TakesSlots(const std::string& method) {
  const auto made = compression::MakeMethod(method);
  return !made || (*made)->traits().budget.HasEffect();
}

}  // namespace

std::optional<runtime::SessionOptions> ReadKv(Fields& fields, const ServiceOptions& options) {
  Compression kv = options.kv;
  const auto method_name = fields.Text("kv_method");
  const auto decode_name = fields.Text("kv_decode");
  if (method_name) {
    kv.method = *method_name;
    kv.decode.clear();  // it belonged to the other method
  }
  if (decode_name) kv.decode = *decode_name;
  if (method_name && method_name->empty())
    fields.Fail("kv_method", "expected the name of a method");
  const bool has_budget = ReadBudget(fields, kv);
  // The default budget belongs to another method.
  if (method_name && !has_budget && kv.decode.empty() && !TakesSlots(*method_name)) {
    kv.size = 0;
    kv.ratio = 0;
    if (method_name == "full") kv.memory_bytes = 0;
  }
  const bool asked = method_name || decode_name || kv != options.kv;
  if (!asked || !fields.ok()) return std::nullopt;

  constexpr runtime::CompressionFieldNames kWords = {.method = "kv_method",
                                                     .decode = "kv_decode",
                                                     .size = "kv_size",
                                                     .ratio = "kv_ratio",
                                                     .memory = "kv_memory",
                                                     .quality = ""};
  runtime::CompressionProblem problem;
  auto compression = runtime::MakeCompression(kv, kWords, &problem);
  if (!compression) {
    const std::string_view of_several = method_name ? kWords.method : kWords.size;
    fields.Fail(problem.field.empty() ? of_several : problem.field, problem.text);
    return std::nullopt;
  }
  runtime::SessionOptions session = options.session;
  session.compression.method = compression->method;
  session.compression.size = compression->size;
  session.compression.ratio = compression->ratio;
  session.compression.memory_bytes = compression->memory_bytes;
  return session;
}

}  // namespace winnow::server

#include "server/openai/kv_fields.h"

#include <cmath>
#include <utility>

#include "compression/registry.h"

namespace winnow::server {
namespace {

// 268435456, "256M", "1.5g": suffixes are powers of 1024. nullopt: none of these.
std::optional<int64_t> BytesIn(const report::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value.data)) {
    return *integer > 0 ? std::optional(*integer) : std::nullopt;
  }
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr || text->empty()) return std::nullopt;
  std::string number = *text;
  double factor = 1;
  const char suffix = number.back();
  if (suffix == 'k' || suffix == 'K') factor = 1024;
  if (suffix == 'm' || suffix == 'M') factor = 1024.0 * 1024;
  if (suffix == 'g' || suffix == 'G') factor = 1024.0 * 1024 * 1024;
  if (factor != 1) number.pop_back();
  size_t n_read = 0;
  double amount = 0;
  if (number.empty() || number.find_first_not_of("0123456789.") != std::string::npos) {
    return std::nullopt;
  }
  try {
    amount = std::stod(number, &n_read);
  } catch (const std::exception&) {  // out of range, or a lone dot
    return std::nullopt;
  }
  const double bytes = std::floor(amount * factor);
  if (n_read != number.size() || !(bytes >= 1 && bytes <= 9e18)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

bool HasBudget(const KvSettings& kv) { return kv.size > 0 || kv.ratio > 0 || kv.memory_bytes > 0; }

void ReadBudget(Fields& fields, KvSettings& kv) {
  constexpr double kSmallestRatio = 1e-9;
  const auto size = fields.Integer("kv_size", 1);
  const auto ratio = fields.Number("kv_ratio", kSmallestRatio, 1);
  std::optional<int64_t> memory;
  if (const report::Value* value = fields.Find("kv_memory")) {
    memory = BytesIn(*value);
    if (!memory) fields.Fail("kv_memory", "expected bytes, such as 268435456 or \"256M\"");
  }
  const int n_given = (size ? 1 : 0) + (ratio ? 1 : 0) + (memory ? 1 : 0);
  if (n_given == 0) return;
  if (n_given > 1) {
    fields.Fail(size ? "kv_size" : "kv_ratio", "give only one of kv_size, kv_ratio and kv_memory");
  }
  kv.size = size.value_or(0);
  kv.ratio = ratio.value_or(0);
  kv.memory_bytes = memory.value_or(0);
}

}  // namespace

std::optional<runtime::SessionOptions> ReadKv(Fields& fields, const ServiceOptions& options) {
  KvSettings kv = options.kv;
  const auto method_name = fields.Text("kv_method");
  const auto decode_name = fields.Text("kv_decode");
  if (method_name) {
    kv.method = *method_name;
    kv.decode.clear();  // it belonged to the other method
  }
  if (decode_name) kv.decode = *decode_name;
  ReadBudget(fields, kv);
  const bool asked = method_name || decode_name || kv != options.kv;
  if (!asked || !fields.ok()) return std::nullopt;

  const char* const named = method_name ? "kv_method" : "kv_size";
  auto method = compression::MakeMethod(kv.method);
  if (!method) {
    fields.Fail("kv_method", method.error().message);
    return std::nullopt;
  }
  if (!kv.decode.empty()) {
    const auto decode = compression::MakeMethod(kv.decode);
    if (!decode) {
      fields.Fail("kv_decode", decode.error().message);
      return std::nullopt;
    }
    method = compression::WithDecode(*method, *decode);
    if (!method) {
      fields.Fail("kv_decode", method.error().message);
      return std::nullopt;
    }
  }
  runtime::SessionOptions session = options.session;
  runtime::CompressionOptions& compression = session.compression;
  compression.method = nullptr;
  compression.size = compression.memory_bytes = 0;
  compression.ratio = 0;
  const compression::Traits& traits = (*method)->traits();
  if (traits.spec == "full") {
    // Asked for by name, a full cache has no size; the default budget belonged to another method.
    if (!method_name && (kv.size > 0 || kv.ratio > 0)) {
      fields.Fail(named, "the full cache has no size to choose: name a kv_method");
    }
    return session;
  }
  compression.method = *method;
  compression.size = kv.size;
  compression.ratio = kv.ratio;
  compression.memory_bytes = kv.memory_bytes;
  if (traits.needs_budget && !HasBudget(kv)) {
    fields.Fail(named, traits.spec + " needs a budget: kv_size (entries per KV head, " +
                           std::to_string(traits.min_budget) +
                           " or more), kv_ratio (share of the prompt) or kv_memory (bytes)");
    return std::nullopt;
  }
  if (kv.size > 0 && kv.size < traits.min_budget) {
    fields.Fail("kv_size", "found " + std::to_string(kv.size) + ", " + traits.spec + " needs " +
                               std::to_string(traits.min_budget) + " or more");
    return std::nullopt;
  }
  if (const auto valid = runtime::Compressor::Check(compression); !valid) {
    fields.Fail(named, valid.error().message);
  }
  return session;
}

}  // namespace winnow::server

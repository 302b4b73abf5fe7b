// Feeds arbitrary text to the parser of method specs. An accepted method is asked everything that a
// caller asks before a model is loaded.
//
// The first line is the method for the prompt, the second, if any, the method for decoding.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "compression/registry.h"

namespace {

using winnow::Result;
using winnow::compression::MethodPtr;

// Messages are one line for the terminal.
void CheckMessage(std::string_view message) {
  WINNOW_CHECK(!message.empty() && message.find('\n') == std::string_view::npos);
}

void Exercise(const winnow::compression::Method& method) {
  const auto& traits = method.traits();
  WINNOW_CHECK(!traits.spec.empty() && traits.budget.min >= 1);
  (void)method.needs();
  const int n_layers = 7;
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{1} << 31}) {
    for (const int64_t more : {int64_t{0}, int64_t{50}, int64_t{1} << 31}) {
      const int64_t budget = traits.budget.min + more;
      const int64_t max = method.MaxSlots(budget, n);
      WINNOW_CHECK(max >= 0 && max <= n);
      const int64_t total = method.TotalSlots(budget, n, n_layers);
      WINNOW_CHECK(total >= 0 && total <= n * n_layers);
      WINNOW_CHECK(method.TotalRows(budget, n, n_layers) >= 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  const auto first = winnow::compression::MakeMethod(text.substr(0, end));
  if (!first) {
    CheckMessage(first.error().message);
    return 0;
  }
  Exercise(**first);
  if (end == std::string_view::npos) return 0;
  const auto second = winnow::compression::MakeMethod(text.substr(end + 1));
  if (!second) return 0;
  const auto both = winnow::compression::WithDecode(*first, *second);
  if (both) {
    Exercise(**both);
  } else {
    CheckMessage(both.error().message);
  }
  return 0;
}

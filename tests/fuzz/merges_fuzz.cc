// Merging in chunks equals merging the whole, for any merges and any text.
//
// The input chooses the sizes of chunk and margin and up to 24 merges of two symbols; the rest is
// the text, over four letters.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fuzzed_data.h"
#include "tokenizer/merge_chunks.h"

namespace {

using winnow::tokenizer::ChunkSize;
using winnow::tokenizer::Merge;
using winnow::tokenizer::Symbol;

using Rules = std::map<std::pair<int32_t, int32_t>, Merge>;
using Parts = std::vector<std::tuple<uint32_t, uint32_t, int32_t>>;  // begin, length, id

constexpr int32_t kLetters = 4;

Rules RulesFrom(FuzzedData& input) {
  Rules rules;
  int32_t n_ids = kLetters;
  const int n_merges = input.ConsumeIntegralInRange<int>(0, 24);
  for (int i = 0; i < n_merges; ++i) {
    const auto left = input.ConsumeIntegralInRange<int32_t>(0, n_ids - 1);
    const auto right = input.ConsumeIntegralInRange<int32_t>(0, n_ids - 1);
    const auto priority = input.ConsumeIntegralInRange<uint32_t>(0, 24);
    rules.emplace(std::pair{left, right}, Merge{.priority = priority, .id = n_ids++});
  }
  return rules;
}

Parts Merged(const std::string& text, const Rules& rules, const ChunkSize& chunk) {
  const auto make = [&](size_t begin, size_t end, std::vector<Symbol>& symbols) {
    for (size_t i = begin; i < end; ++i) {
      const auto place = static_cast<int32_t>(i - begin);
      symbols.push_back({.begin = static_cast<uint32_t>(i),
                         .length = 1,
                         .previous = place - 1,
                         .next = i + 1 < end ? place + 1 : -1,
                         .id = text[i] & (kLetters - 1)});
    }
  };
  const auto rule = [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const auto found = rules.find({left.id, right.id});
    return found == rules.end() ? std::nullopt : std::optional(found->second);
  };
  Parts parts;
  const auto emit = [&](const Symbol& symbol) {
    parts.emplace_back(symbol.begin, symbol.length, symbol.id);
  };
  winnow::tokenizer::MergeInChunks(text.size(), chunk, make, rule, emit, parts);
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedData input(data, size);
  const ChunkSize chunk = {.bytes = input.ConsumeIntegralInRange<size_t>(1, 40),
                           .margin = input.ConsumeIntegralInRange<size_t>(0, 10)};
  const Rules rules = RulesFrom(input);
  const std::string text = input.ConsumeRemainingBytesAsString().substr(0, 400);
  WINNOW_CHECK(Merged(text, rules, chunk) ==
               Merged(text, rules, {.bytes = text.size() + 1, .margin = 0}));
  return 0;
}

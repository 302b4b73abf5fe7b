#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The text itself, with every token coloured by its state in the cache.
namespace winnow::report {

struct TokenMap {
  // State of a token in one KV head of one layer: kKept, kEvicted, or kMerged if its entry was
  // evicted but merged into one that stays.
  static constexpr char kKept = 'k';
  static constexpr char kEvicted = 'e';
  static constexpr char kMerged = 'm';
  static constexpr int32_t kStays = -1;

  // One variant to look at, for example a method.
  struct View {
    std::string name;  // "snapkv"
    // [layer][kv_head]: a state for each token
    std::vector<std::vector<std::string>> states;
    // [layer][kv_head][token] number of tokens seen when the entry was evicted; kStays if it stays,
    // 0 if it never existed. Empty: only the final state is known.
    std::vector<std::vector<std::vector<int32_t>>> evicted_at = {};
  };

  std::string name;  // base name of its files
  std::string title;
  std::string caption;
  std::vector<std::string> tokens;  // raw bytes, possibly invalid UTF-8
  std::vector<View> views;          // all with the same number of layers
  std::vector<bool> marked = {};    // [token] underlined; empty: none
  // If views have evicted_at: the number of tokens that came at once, before the first step that a
  // reader can choose.
  int64_t n_prompt = 0;
};

// The shares of all layers and heads of a view that kept or merged a token.
struct TokenShares {
  double kept = 0;
  double merged = 0;
};
std::vector<TokenShares> CountTokenShares(const TokenMap::View& view, size_t n_tokens);

// "kkkee" -> "3k2e": states are mostly runs.
std::string RunLengths(std::string_view states);

}  // namespace winnow::report

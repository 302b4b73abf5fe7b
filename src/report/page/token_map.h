#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The text itself, every token coloured by what became of it in the cache.
namespace winnow::report {

struct TokenMap {
  // What became of a token in one KV head of one layer: kKept; kEvicted; kMerged: its entry went,
  // but flowed into one that stays.
  static constexpr char kKept = 'k';
  static constexpr char kEvicted = 'e';
  static constexpr char kMerged = 'm';
  static constexpr int32_t kStays = -1;

  // One way of keeping the cache.
  struct View {
    std::string name;  // "snapkv"
    // [layer][kv_head]: a state for each token
    std::vector<std::vector<std::string>> states;
    // [layer][kv_head][token] tokens seen when its entry went; kStays, or 0 if it never had one.
    // Empty: only the end is known.
    std::vector<std::vector<std::vector<int32_t>>> evicted_at = {};
  };

  std::string name;  // of its files
  std::string title;
  std::string caption;
  std::vector<std::string> tokens;  // bytes, whatever they are
  std::vector<View> views;          // of the same number of layers
  std::vector<bool> marked = {};    // [token] underlined; empty: none
  // Where views have evicted_at: the tokens that came at once, before the first step that a reader
  // can choose.
  int64_t n_prompt = 0;
};

// How much of a token is left over all layers and heads of a view.
struct TokenShares {
  double kept = 0;
  double merged = 0;
};
std::vector<TokenShares> CountTokenShares(const TokenMap::View& view, size_t n_tokens);

// "kkkee" -> "3k2e": states are mostly runs.
std::string RunLengths(std::string_view states);

}  // namespace winnow::report

#include "eval/run/text_windows.h"

#include <algorithm>
#include <string>

namespace winnow::eval {
namespace {

constexpr int64_t kMinWindow = 4;

}  // namespace

std::span<const TokenId> TextWindows::Tokens(int64_t index) const {
  return std::span(tokens).subspan(static_cast<size_t>(index * window),
                                   static_cast<size_t>(window));
}

Result<TextWindows> CutWindows(std::span<const TokenId> text, int64_t window, int64_t max_windows,
                               std::optional<TokenId> bos) {
  const int64_t n_tokens = static_cast<int64_t>(text.size());
  if (window < kMinWindow) {
    return Error{"a window of " + std::to_string(window) +
                 " tokens leaves nothing to score, expected at least " +
                 std::to_string(kMinWindow)};
  }
  if (n_tokens <= 1) return Error{"there is no text to score"};
  if (n_tokens < kMinWindow) {
    return Error{"the text has " + std::to_string(n_tokens) + " tokens, expected at least " +
                 std::to_string(kMinWindow)};
  }
  TextWindows windows;
  windows.window = std::min(window, n_tokens);
  windows.n_windows = n_tokens / windows.window;
  if (max_windows >= 0) windows.n_windows = std::min(windows.n_windows, max_windows);
  windows.tokens.assign(text.begin(), text.begin() + windows.n_windows * windows.window);
  if (bos) {
    for (int64_t i = 0; i < windows.n_windows; ++i) {
      windows.tokens[static_cast<size_t>(i * windows.window)] = *bos;
    }
  }
  return windows;
}

}  // namespace winnow::eval

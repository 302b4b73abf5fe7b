#include "eval/run/token_stream.h"

#include <algorithm>
#include <utility>

namespace winnow::eval {
namespace {

using tokenizer::TokenId;

bool IsSpace(char c) { return c == ' ' || c == '\n'; }

// The byte offsets in `text` at which the tokens end; kNotFound from the first token on that does
// not match the text.
constexpr size_t kNotFound = std::string_view::npos;

std::vector<size_t> TokenEnds(const std::vector<TokenId>& tokens,
                              const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  std::vector<size_t> ends;
  size_t at = 0;
  for (const TokenId token : tokens) {
    const std::string piece = tokenizer.Piece(token, true);
    std::string_view bytes = piece;
    // Encode puts a space in front of some texts.
    if (!text.substr(at).starts_with(bytes) && bytes.starts_with(' ')) bytes.remove_prefix(1);
    if (!text.substr(at).starts_with(bytes)) break;
    ends.push_back(at += bytes.size());
  }
  ends.resize(tokens.size(), kNotFound);
  return ends;
}

}  // namespace

bool TokenStream::IsBetweenWords(size_t at) const {
  return at > 0 && at < buffer_.size() && IsSpace(buffer_[at]) && !IsSpace(buffer_[at - 1]);
}

TokenStream::Cut TokenStream::LastCut(const std::vector<size_t>& ends, size_t min,
                                      size_t max) const {
  Cut any;
  for (size_t i = ends.size(); i-- > 0 && ends[i] > min;) {
    if (ends[i] > max) continue;
    if (IsBetweenWords(ends[i])) return {i + 1, ends[i]};
    if (any.n_tokens == 0) any = {i + 1, ends[i]};
  }
  return any;
}

Result<bool> TokenStream::Next(std::vector<TokenId>& tokens) {
  const size_t n_before = tokens.size();
  if (!begun_) {
    begun_ = true;
    if (tokenizer_.adds_bos() && tokenizer_.bos()) tokens.push_back(*tokenizer_.bos());
  }
  while (!ended_ && buffer_.size() < n_emitted_ + sizes_.block + sizes_.overlap) {
    WINNOW_ASSIGN(const std::string piece, source_());
    buffer_ += piece;
    ended_ = piece.empty();
  }
  if (n_emitted_ == buffer_.size()) {
    const bool adds_end = tokenizer_.adds_eos() && tokenizer_.eos();
    if (adds_end && !std::exchange(finished_, true)) tokens.push_back(*tokenizer_.eos());
    return tokens.size() > n_before;
  }

  std::vector<TokenId> block =
      tokenizer_.Encode(buffer_, {.add_special = false, .parse_special = true});
  std::vector<size_t> ends = TokenEnds(block, tokenizer_, buffer_);
  auto emitted = std::find(ends.begin(), ends.end(), n_emitted_);
  if (n_emitted_ > 0 && emitted == ends.end()) {
    // The last block does not end at a token boundary of this one: encode the rest afresh.
    buffer_.erase(0, std::exchange(n_emitted_, 0));
    block = tokenizer_.Encode(buffer_, {.add_special = false, .parse_special = true});
    ends = TokenEnds(block, tokenizer_, buffer_);
    emitted = ends.end();
  }
  const size_t first = n_emitted_ == 0 ? 0 : static_cast<size_t>(emitted - ends.begin()) + 1;
  Cut cut = {block.size(), buffer_.size()};
  if (!ended_) {
    const Cut found = LastCut(ends, n_emitted_, buffer_.size() - sizes_.overlap);
    if (found.n_tokens > first) cut = found;
  }
  tokens.insert(tokens.end(), block.begin() + static_cast<ptrdiff_t>(first),
                block.begin() + static_cast<ptrdiff_t>(cut.n_tokens));
  const Cut behind = LastCut(ends, 0, cut.n_bytes - std::min(cut.n_bytes, sizes_.overlap));
  buffer_.erase(0, behind.n_bytes);
  n_emitted_ = cut.n_bytes - behind.n_bytes;
  return true;
}

}  // namespace winnow::eval

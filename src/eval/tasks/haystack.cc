#include "eval/tasks/haystack.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace winnow::eval {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

std::vector<size_t> SentenceEnds(std::string_view text) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < text.size(); ++i) {
    size_t end = 0;
    if (text[i] == '\n') {
      end = i;
    } else if (text[i] == '.' || text[i] == '!' || text[i] == '?') {
      end = i + 1;
      while (end < text.size() && (text[end] == '"' || text[end] == '\'' || text[end] == ')'))
        ++end;
      if (end < text.size() && !IsSpace(text[end])) continue;
    }
    if (end > 0 && (ends.empty() || ends.back() < end)) ends.push_back(end);
  }
  return ends;
}

Haystack::Haystack(const tokenizer::Tokenizer& tokenizer, std::string text)
    : tokenizer_(tokenizer), text_(std::move(text)), starts_{0} {
  WINNOW_CHECK(!text_.empty());
  if (!IsSpace(text_.back())) text_ += '\n';
  for (const size_t end : SentenceEnds(text_)) {
    const size_t start = text_.find_first_not_of(" \n\t\r", end);
    if (start != std::string::npos) starts_.push_back(start);
  }
  // Good enough to estimate how much text is needed; Build then counts tokens.
  const std::string_view sample = std::string_view(text_).substr(0, 20000);
  tokens_per_byte_ =
      static_cast<double>(tokenizer_.Encode(sample).size()) / static_cast<double>(sample.size());
}

std::string Haystack::Build(int64_t n_tokens, size_t start,
                            const std::vector<Needle>& needles) const {
  WINNOW_CHECK(n_tokens >= 0);
  // Take about one and a half times the text needed, then cut it to the token.
  std::string text;
  const auto n_bytes =
      static_cast<size_t>(1.5 * static_cast<double>(n_tokens) / tokens_per_byte_) + 64;
  for (size_t at = starts_[start]; text.size() < n_bytes; at = 0) {
    text += text_.substr(at, n_bytes - text.size());
  }
  const std::vector<TokenId> tokens =
      tokenizer_.Encode(text, {.add_special = false, .parse_special = false});
  const auto kept = std::span(tokens).first(std::min(tokens.size(), static_cast<size_t>(n_tokens)));
  text = tokenizer_.Decode(kept);

  std::vector<size_t> ends = SentenceEnds(text);
  std::vector<std::pair<size_t, const Needle*>> places;
  for (const Needle& needle : needles) {
    size_t at = text.size();
    if (needle.depth < 100) {
      const auto n_before =
          static_cast<size_t>(needle.depth / 100 * static_cast<double>(kept.size()));
      const size_t place = tokenizer_.Decode(kept.first(n_before)).size();
      const auto after = std::upper_bound(ends.begin(), ends.end(), place);
      at = after == ends.begin() ? 0 : *std::prev(after);
    }
    places.emplace_back(at, &needle);
  }
  // Insert from the end, so that earlier places stay valid.
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [at, needle] : places) {
    const bool space_before = at > 0 && !IsSpace(text[at - 1]);
    const bool space_after = at < text.size() && !IsSpace(text[at]);
    text.insert(at, (space_before ? " " : "") + needle->text + (space_after ? " " : ""));
  }
  return text;
}

}  // namespace winnow::eval

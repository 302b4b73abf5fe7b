#include "eval/metrics/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "base/check.h"

namespace winnow::eval {
namespace {

PCRE2_SPTR Bytes(std::string_view text) {
  // The library needs a valid address even for an empty text.
  return reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
}

}  // namespace

struct Pattern::Code {
  explicit Code(std::string_view expression) {
    int error = 0;
    PCRE2_SIZE at = 0;
    constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
    code = pcre2_compile(Bytes(expression), expression.size(), kOptions, &error, &at, nullptr);
    WINNOW_CHECK(code != nullptr);
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code = nullptr;
};

Pattern::Pattern(std::string_view expression) : code_(std::make_shared<Code>(expression)) {}

std::vector<std::string> Pattern::FindAll(std::string_view text, int group) const {
  std::vector<std::string> found;
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), pcre2_match_data_free);
  for (size_t at = 0; at <= text.size();) {
    const int n = pcre2_match(code_->code, Bytes(text), text.size(), at, 0, match.get(), nullptr);
    if (n < 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    const auto first = static_cast<size_t>(2 * group);
    const bool took_part = group < n && ends[first] != PCRE2_UNSET;
    found.emplace_back(took_part ? text.substr(ends[first], ends[first + 1] - ends[first])
                                 : std::string_view());
    at = ends[1] > ends[0] ? ends[1] : ends[1] + 1;
  }
  return found;
}

bool Pattern::Find(std::string_view text, std::string* found, int group) const {
  const std::vector<std::string> all = FindAll(text, group);
  if (all.empty()) return false;
  *found = all.front();
  return true;
}

std::string Pattern::Replace(std::string_view text, std::string_view replacement) const {
  constexpr uint32_t kOptions = PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_EXTENDED |
                                PCRE2_SUBSTITUTE_UNSET_EMPTY | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH;
  std::string out(2 * text.size() + 64, '\0');
  for (;;) {
    PCRE2_SIZE size = out.size();
    const int n = pcre2_substitute(code_->code, Bytes(text), text.size(), 0, kOptions, nullptr,
                                   nullptr, Bytes(replacement), replacement.size(),
                                   reinterpret_cast<PCRE2_UCHAR*>(out.data()), &size);
    if (n == PCRE2_ERROR_NOMEMORY) {
      out.resize(size);  // the size that it needs
      continue;
    }
    WINNOW_CHECK(n >= 0);
    out.resize(size);
    return out;
  }
}

}  // namespace winnow::eval

#include "jinja/text.h"

#include <algorithm>

namespace winnow::jinja {
namespace {

bool IsAscii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

Text::Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)), ascii_(IsAscii(bytes_)) {
  if (!bytes_.empty()) runs_.push_back({0, trusted});
}

size_t Text::RunIndex(size_t byte) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), byte,
                                      [](size_t at, const Run& run) { return at < run.begin; });
  return static_cast<size_t>(after - runs_.begin()) - 1;
}

bool Text::TrustedAt(size_t byte) const { return runs_[RunIndex(byte)].trusted; }

void Text::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  if (runs_.empty() || runs_.back().trusted != trusted) runs_.push_back({bytes_.size(), trusted});
  ascii_ = ascii_ && IsAscii(bytes);
  bytes_ += bytes;
}

void Text::AppendSlice(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  const std::string_view all = text.bytes_;
  for (size_t i = text.RunIndex(begin); i < text.runs_.size() && text.runs_[i].begin < end; ++i) {
    const size_t from = std::max(begin, text.runs_[i].begin);
    const size_t to = i + 1 < text.runs_.size() ? std::min(end, text.runs_[i + 1].begin) : end;
    Append(all.substr(from, to - from), text.runs_[i].trusted);
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text out;
  out.AppendSlice(*this, begin, end);
  return out;
}

void Text::Clear() { *this = {}; }

}  // namespace winnow::jinja

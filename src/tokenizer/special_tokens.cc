#include "tokenizer/special_tokens.h"

#include <algorithm>
#include <utility>

namespace winnow::tokenizer {
namespace {

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Entry> entries) : first_(257, 0) {
  std::erase_if(entries, [](const Entry& entry) { return entry.text.empty(); });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& entry : entries) {
    if (!entries_.empty() && entries_.back().text == entry.text) entries_.pop_back();
    entries_.push_back(entry);
    longest_ = std::max(longest_, entry.text.size());
  }
  for (const Entry& entry : entries_) ++first_[static_cast<uint8_t>(entry.text[0]) + 1];
  for (size_t b = 0; b < 256; ++b) first_[b + 1] += first_[b];
}

const SpecialTokens::Entry* SpecialTokens::LongestAt(std::string_view text, size_t limit) const {
  const auto lead = static_cast<uint8_t>(text[0]);
  auto begin = entries_.begin() + first_[lead];
  auto end = entries_.begin() + first_[lead + 1];
  const Entry* longest = nullptr;
  // [begin, end) are the entries that share their first `depth` bytes with `text`; the shortest of
  // them is first.
  for (size_t depth = 1; begin != end; ++depth) {
    if (begin->text.size() == depth) longest = &*begin++;
    if (depth >= std::min(text.size(), limit)) break;
    const auto byte = static_cast<uint8_t>(text[depth]);
    const auto at_depth = [depth](const Entry& entry) {
      return static_cast<uint8_t>(entry.text[depth]);
    };
    begin = std::partition_point(begin, end,
                                 [&](const Entry& entry) { return at_depth(entry) < byte; });
    end = std::partition_point(begin, end,
                               [&](const Entry& entry) { return at_depth(entry) == byte; });
  }
  return longest;
}

std::vector<SpecialTokens::Match> SpecialTokens::FindMatches(std::string_view text) const {
  std::vector<Match> candidates;  // by place, each the longest possible there
  std::vector<bool> lengths(longest_ + 1, false);
  for (size_t at = 0; at < text.size(); ++at) {
    const auto lead = static_cast<uint8_t>(text[at]);
    if (first_[lead] == first_[lead + 1]) continue;
    const Entry* entry = LongestAt(text.substr(at), longest_);
    if (entry == nullptr) continue;
    candidates.push_back({.begin = at, .entry = entry});
    lengths[entry->text.size()] = true;
  }

  // Longest first. Where a candidate overlaps what was taken before, a shorter entry at the same
  // place may still fit; it is of a length whose turn comes later.
  std::vector<Match> taken;
  std::vector<Match> left;
  for (size_t length = longest_; length > 0 && !candidates.empty(); --length) {
    if (!lengths[length]) continue;
    std::vector<Match> chosen;
    size_t free_from = 0;  // end of the last token chosen in this round
    left.clear();
    size_t next_taken = 0;
    for (Match candidate : candidates) {
      while (next_taken < taken.size() &&
             taken[next_taken].begin + taken[next_taken].entry->text.size() <= candidate.begin) {
        ++next_taken;
      }
      const size_t room_end = next_taken < taken.size() ? taken[next_taken].begin : text.size();
      if (candidate.begin < free_from || candidate.begin >= room_end)
        continue;  // covered: gone for good
      if (candidate.begin + candidate.entry->text.size() > room_end) {
        candidate.entry = LongestAt(text.substr(candidate.begin), room_end - candidate.begin);
        if (candidate.entry == nullptr) continue;
        lengths[candidate.entry->text.size()] = true;
      }
      if (candidate.entry->text.size() < length) {
        left.push_back(candidate);
        continue;
      }
      chosen.push_back(candidate);
      free_from = candidate.begin + length;
    }
    std::swap(candidates, left);
    if (chosen.empty()) continue;
    std::vector<Match> both(taken.size() + chosen.size());
    std::merge(taken.begin(), taken.end(), chosen.begin(), chosen.end(), both.begin(),
               [](const Match& a, const Match& b) { return a.begin < b.begin; });
    taken = std::move(both);
  }
  return taken;
}

std::vector<Fragment> SpecialTokens::Partition(std::string_view text) const {
  std::vector<Fragment> fragments;
  size_t at = 0;
  const auto add_text = [&](size_t end) {
    if (end > at) fragments.push_back({.text = text.substr(at, end - at)});
  };
  if (!entries_.empty()) {
    for (const Match& match : FindMatches(text)) {
      add_text(match.begin);
      const Entry& entry = *match.entry;
      fragments.push_back(
          {.text = text.substr(match.begin, entry.text.size()), .token = entry.token});
      at = match.begin + entry.text.size();
      while (entry.takes_space_behind && at < text.size() && IsAsciiSpace(text[at])) ++at;
    }
  }
  add_text(text.size());
  return fragments;
}

}  // namespace winnow::tokenizer

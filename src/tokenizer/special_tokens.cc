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

const SpecialTokens::Entry* SpecialTokens::LongestAt(std::string_view text,
                                                     size_t marked_bytes) const {
  const auto lead = static_cast<uint8_t>(text[0]);
  auto begin = entries_.begin() + first_[lead];
  auto end = entries_.begin() + first_[lead + 1];
  const Entry* longest = nullptr;
  // Entries [begin, end) share their first `depth` bytes with `text`; the shortest is first.
  for (size_t depth = 1; begin != end; ++depth) {
    if (begin->text.size() == depth) {
      if (begin->in_plain_text || depth <= marked_bytes) longest = &*begin;
      ++begin;
    }
    if (depth == text.size()) break;
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

std::vector<SpecialTokens::Candidate> SpecialTokens::FindAll(std::string_view text,
                                                             std::span<const Range> plain) const {
  std::vector<Candidate> candidates;
  for (size_t at = 0; at < text.size(); ++at) {
    while (!plain.empty() && plain.front().end <= at) plain = plain.subspan(1);
    const auto lead = static_cast<uint8_t>(text[at]);
    if (first_[lead] == first_[lead + 1]) continue;
    const size_t marked_end = plain.empty() ? text.size() : std::max(plain.front().begin, at);
    const Entry* entry = LongestAt(text.substr(at), marked_end - at);
    if (entry == nullptr) continue;
    candidates.push_back({.begin = at, .marked_bytes = marked_end - at, .entry = entry});
  }
  return candidates;
}

// `candidates` are the longest at their offsets. Both they and the result are in text order.
std::vector<SpecialTokens::Candidate> SpecialTokens::WithoutOverlaps(
    std::string_view text, std::vector<Candidate> candidates) const {
  std::vector<bool> lengths(longest_ + 1, false);
  for (const Candidate& candidate : candidates) lengths[candidate.entry->text.size()] = true;
  std::vector<Candidate> taken;
  for (size_t length = longest_; length > 0 && !candidates.empty(); --length) {
    if (!lengths[length]) continue;
    std::vector<Candidate> chosen;
    std::vector<Candidate> later;  // shorter candidates, for a later round
    size_t next_taken = 0;
    for (Candidate candidate : candidates) {
      while (next_taken < taken.size() && taken[next_taken].end() <= candidate.begin) ++next_taken;
      const size_t room_end = next_taken < taken.size() ? taken[next_taken].begin : text.size();
      const bool covered =
          candidate.begin >= room_end || (!chosen.empty() && candidate.begin < chosen.back().end());
      if (covered) continue;
      if (candidate.end() > room_end) {
        candidate.entry = LongestAt(text.substr(candidate.begin, room_end - candidate.begin),
                                    candidate.marked_bytes);
        if (candidate.entry == nullptr) continue;
        lengths[candidate.entry->text.size()] = true;
      }
      (candidate.entry->text.size() == length ? chosen : later).push_back(candidate);
    }
    candidates = std::move(later);
    std::vector<Candidate> both(taken.size() + chosen.size());
    std::merge(taken.begin(), taken.end(), chosen.begin(), chosen.end(), both.begin(),
               [](const Candidate& a, const Candidate& b) { return a.begin < b.begin; });
    taken = std::move(both);
  }
  return taken;
}

std::vector<Fragment> SpecialTokens::Partition(std::string_view text,
                                               std::span<const Range> plain) const {
  std::vector<Fragment> fragments;
  size_t at = 0;
  const auto add_text = [&](size_t end) {
    if (end > at) fragments.push_back({.text = text.substr(at, end - at)});
  };
  if (!entries_.empty()) {
    for (const Candidate& found : WithoutOverlaps(text, FindAll(text, plain))) {
      add_text(found.begin);
      const Entry& entry = *found.entry;
      fragments.push_back(
          {.text = text.substr(found.begin, entry.text.size()), .token = entry.token});
      at = found.end();
      while (entry.strips_space_after && at < text.size() && IsAsciiSpace(text[at])) ++at;
    }
  }
  add_text(text.size());
  return fragments;
}

}  // namespace winnow::tokenizer

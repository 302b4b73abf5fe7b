#include "runtime/store/session_names.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace winnow::runtime {
namespace {

constexpr size_t kMaxNameLength = 128;
constexpr size_t kMaxClosed = 4096;  // names that are remembered

bool IsAllowed(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

bool IsSessionName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength && name.front() != '.' &&
         std::ranges::all_of(name, IsAllowed);
}

SessionNames::Outcome SessionNames::ClaimExisting(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = busy_.find(name);
  if (found == busy_.end()) {
    return std::ranges::find(closed_, name) == closed_.end() ? Outcome::kUnknown : Outcome::kClosed;
  }
  if (found->second) return Outcome::kBusy;
  found->second = true;
  return Outcome::kClaimed;
}

SessionNames::Outcome SessionNames::ClaimNew(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto [found, added] = busy_.emplace(name, true);
  if (!added) return found->second ? Outcome::kBusy : Outcome::kExists;
  std::erase(closed_, name);
  return Outcome::kClaimed;
}

SessionNames::Outcome SessionNames::ClaimAny(const std::string& name) {
  const std::lock_guard lock(mutex_);
  bool& busy = busy_[name];
  if (busy) return Outcome::kBusy;
  busy = true;
  return Outcome::kClaimed;
}

void SessionNames::Release(const std::string& name, bool exists) {
  const std::lock_guard lock(mutex_);
  const auto found = busy_.find(name);
  WINNOW_CHECK(found != busy_.end() && found->second);
  if (exists) {
    found->second = false;
  } else {
    busy_.erase(found);
  }
}

bool SessionNames::Close(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = busy_.find(name);
  if (found != busy_.end() && found->second) return false;
  closed_.push_back(name);
  if (found != busy_.end()) busy_.erase(found);
  if (closed_.size() > kMaxClosed) closed_.pop_front();
  return true;
}

SessionNames::Outcome SessionClaim::Take(std::string name) {
  name_ = std::move(name);
  return Hold(names_.ClaimExisting(name_), true);
}

SessionNames::Outcome SessionClaim::TakeNew(std::string name) {
  name_ = std::move(name);
  return Hold(names_.ClaimNew(name_), false);
}

SessionNames::Outcome SessionClaim::TakeAny(std::string name, bool exists) {
  name_ = std::move(name);
  return Hold(names_.ClaimAny(name_), exists);
}

SessionNames::Outcome SessionClaim::Hold(SessionNames::Outcome outcome, bool existed) {
  WINNOW_CHECK(!held_);
  held_ = outcome == SessionNames::Outcome::kClaimed;
  existed_ = existed;
  return outcome;
}

void SessionClaim::Release(bool exists) {
  if (std::exchange(held_, false)) names_.Release(name_, exists);
}

bool SessionNames::busy(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = busy_.find(name);
  return found != busy_.end() && found->second;
}

}  // namespace winnow::runtime

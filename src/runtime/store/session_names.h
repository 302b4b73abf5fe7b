#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace winnow::runtime {

// Whether a client may use this name for a session (and its file): 1 to 128 of A-Z a-z 0-9 . _ -,
// the first no dot.
bool IsSessionName(std::string_view name);

// Claims on named sessions. A request claims its session when it comes in, long before it starts,
// so that a second one is refused at once. Thread-safe.
class SessionNames {
 public:
  enum class Outcome {
    kClaimed,
    kUnknown,  // no such session
    kBusy,     // claimed by another request
    kExists,   // ClaimNew: it exists
    kClosed,   // closed to free memory
  };
  // Claims a session that exists.
  Outcome ClaimExisting(const std::string& name);
  // Claims a name that no session has.
  Outcome ClaimNew(const std::string& name);
  // Claims a name whether or not a session has it; kClaimed or kBusy.
  Outcome ClaimAny(const std::string& name);
  // Ends a claim; `exists`: the session exists now.
  void Release(const std::string& name, bool exists);
  // Closes a session to free memory. False: it is claimed, and stays.
  bool Close(const std::string& name);
  bool busy(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, bool> busy_;  // [name of a session that exists or is about to] claimed
  std::deque<std::string> closed_;    // the most recent ones
};

// One claim on a name, released at the latest when it is destroyed. Not thread-safe; `names` must
// outlive it.
class SessionClaim {
 public:
  explicit SessionClaim(SessionNames& names) : names_(names) {}
  ~SessionClaim() { Release(); }
  SessionClaim(const SessionClaim&) = delete;
  SessionClaim& operator=(const SessionClaim&) = delete;

  // As the functions of SessionNames; the claim is held after kClaimed. Requires: not held.
  SessionNames::Outcome Take(std::string name);
  SessionNames::Outcome TakeNew(std::string name);
  // `exists`: whether there is such a session now.
  SessionNames::Outcome TakeAny(std::string name, bool exists);
  // The session of this name is there from now on, or is not. Does nothing if no name is held.
  void Release(bool exists);
  // As it was when it was claimed.
  void Release() { Release(existed_); }

 private:
  SessionNames::Outcome Hold(SessionNames::Outcome outcome, bool existed);

  SessionNames& names_;
  std::string name_;
  bool held_ = false;
  bool existed_ = false;  // when it was claimed
};

}  // namespace winnow::runtime

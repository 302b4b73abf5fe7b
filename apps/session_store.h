#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "flags.h"
#include "options.h"
#include "report/record.h"
#include "winnow/session.h"

namespace winnow::apps {

// --session and the flags that modify it.
struct SessionFlags {
  std::optional<std::string> file;
  bool read_only = false;
  bool all = false;  // of `run`: save the answer too
};

// The group "Session".
void AddSessionFlags(FlagTable& table, SessionFlags& flags, const char* help);

// A session kept in a file from one command to the next: a document that was read, or a
// conversation.
class SessionStore {
 public:
  SessionStore() = default;
  // Errors (misuse): switches without --session, or that contradict each other.
  static Result<void> Check(const SessionFlags& flags);
  // Checks whether the file exists. If it does, cache flags that are not in `given` take the values
  // the session was saved with, and Load restores the session. Errors: the file cannot be read or
  // is damaged; --session-read-only without a file.
  static Result<SessionStore> Open(const SessionFlags& flags, const FlagTable& given,
                                   ModelFlags& model);

  // Notes that the program saved with the session; null if there was no file.
  const report::Record* notes() const { return notes_ ? &*notes_ : nullptr; }
  bool restored() const { return notes_.has_value(); }
  const std::string& path() const { return *flags_.file; }
  // Whether the session will be written.
  bool saves() const { return flags_.file && !flags_.read_only; }
  // Saves the session with the flags of its cache in `model` and the program's `notes`. Error: the
  // file cannot be written.
  Result<void> Save(const Session& session, const ModelFlags& model, report::Record notes) const;

 private:
  SessionFlags flags_;
  std::optional<report::Record> notes_;
};

}  // namespace winnow::apps

#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "flags.h"
#include "options.h"
#include "report/record.h"
#include "winnow/session.h"

namespace winnow::apps {

// --session and what belongs to it.
struct SessionFlags {
  std::optional<std::string> file;
  bool read_only = false;
  bool all = false;  // of `run`: the answer is saved too
};

// The group "Session".
void AddSessionFlags(FlagTable& table, SessionFlags& flags, const char* help);

// A session that is kept in a file from one command to the next: what was read of a document, or a
// conversation.
class SessionStore {
 public:
  SessionStore() = default;
  // Errors (misuse): switches without --session, or that contradict each other.
  static Result<void> Check(const SessionFlags& flags);
  // Looks whether the file is there. Where it is, flags of the cache that were not given (`given`,
  // parsed) become what the session was saved with, and Load goes on from it. Errors: the file
  // cannot be read or is damaged; --session-read-only without one.
  static Result<SessionStore> Open(const SessionFlags& flags, const FlagTable& given,
                                   ModelFlags& model);

  // What the program saved with it last time; null where there was no file.
  const report::Record* notes() const { return notes_ ? &*notes_ : nullptr; }
  bool restored() const { return notes_.has_value(); }
  const std::string& path() const { return *flags_.file; }
  // Whether a session is to be written.
  bool saves() const { return flags_.file && !flags_.read_only; }
  // `flags` are the model's, remembered with the program's `notes`. Error: the disk.
  Result<void> Save(const Session& session, const ModelFlags& model, report::Record notes) const;

 private:
  SessionFlags flags_;
  std::optional<report::Record> notes_;
};

}  // namespace winnow::apps

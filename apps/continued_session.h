#pragma once

#include <span>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "winnow/model.h"
#include "winnow/session.h"

// A text that goes on from a session of an earlier command, and one that a later command goes on
// from.
namespace winnow::apps {

// The prompt as the session reads it: where its text is not how the prompt begins, the prompt
// follows it.
std::vector<Token> AfterTheSession(const Session& session, std::vector<Token> prompt,
                                   std::span<const Token> without_bos, Log& log);

// What goes on from the session later goes on after all that was shown, and nothing else. The last
// token of an answer may be in no cache yet, and those of a stop string are in it. Error: the
// model's.
Result<void> ReadWhatWasShown(const Model& model, Session& session, const Generation& generated,
                              Log& log);

}  // namespace winnow::apps

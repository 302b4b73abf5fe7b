#pragma once

#include <span>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "winnow/model.h"
#include "winnow/session.h"

// Sessions passed from one command to the next: continuing one, and leaving one to be continued.
namespace winnow::apps {

// The prompt `text`, in tokens `prompt`, as the session reads it: unchanged if it begins with the
// session's text, otherwise appended to that text.
std::vector<Token> PromptAfterSession(const Model& model, const Session& session,
                                      std::span<const MarkedText> text, std::vector<Token> prompt,
                                      Log& log);

// Makes the session hold exactly the text that was shown, so that a later command continues after
// it. The last token of an answer may not be in the cache yet, and the tokens of a stop string are
// in it although they were not shown; a compression method cannot remove these, which is logged as
// a warning. Error: that of the model.
Result<void> SyncSessionWithOutput(const Model& model, Session& session,
                                   const Generation& generated, Log& log);

}  // namespace winnow::apps

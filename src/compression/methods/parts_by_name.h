#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "compression/budget/budget.h"
#include "compression/parameters.h"
#include "compression/score/score.h"

// Parts by name, as in `custom`, for methods that build on any of them.
namespace winnow::compression::methods {

Choices ScoreNames();
Choices BudgetNames();
// Errors: no such part (the message lists the parts), or wrong parameters. The message starts with
// `method`.
Result<score::ScorerPtr> ScoreByName(std::string_view method, const std::string& text);
Result<budget::BudgeterPtr> BudgetByName(std::string_view method, const std::string& text);

}  // namespace winnow::compression::methods

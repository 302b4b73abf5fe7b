#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "compression/budget/budget.h"
#include "compression/parameters.h"
#include "compression/score/score.h"

// Parts by their names, as `custom` takes them: for methods that are built on any of them.
namespace winnow::compression::methods {

Choices ScoreNames();
Choices BudgetNames();
// Errors: no such part (says which there are), or its parameters are wrong. `method` starts the
// message.
Result<score::ScorerPtr> ScoreByName(std::string_view method, const std::string& text);
Result<budget::BudgeterPtr> BudgetByName(std::string_view method, const std::string& text);

}  // namespace winnow::compression::methods

// Combines parts freely, each given by its name, with its parameters in parentheses:
//  custom:score=window(32,pool=none),budget=pyramid(20),select=rounds(rounds=1/4),recent=64
// A new part needs one line in one of the lists below.
#include <algorithm>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/merge/merge.h"
#include "compression/methods/methods.h"
#include "compression/methods/parts_by_name.h"
#include "compression/score/score.h"
#include "compression/select/select.h"
#include "compression/taps.h"

namespace winnow::compression::methods {
namespace {

template <class Ptr>
struct Listed {
  std::string_view name;
  std::function<Result<Ptr>(const Spec&)> make;
};

template <class Ptr>
Listed<Ptr> Part(std::string_view name, Ptr (*factory)()) {
  return {.name = name, .make = [factory](const Spec& spec) -> Result<Ptr> {
            WINNOW_TRY(ParameterReader(spec.name, spec).Finish());
            return factory();
          }};
}

template <class Ptr, class Config>
Listed<Ptr> Part(std::string_view name, Ptr (*factory)(const Config&)) {
  return {.name = name, .make = [factory](const Spec& spec) -> Result<Ptr> {
            WINNOW_ASSIGN(const Config config, ReadConfig<Config>(spec));
            return factory(config);
          }};
}

template <class Ptr, class Config>
Listed<Ptr> Part(std::string_view name, Result<Ptr> (*factory)(const Config&)) {
  return {.name = name, .make = [factory](const Spec& spec) -> Result<Ptr> {
            WINNOW_ASSIGN(const Config config, ReadConfig<Config>(spec));
            return factory(config);
          }};
}

struct HeavyConfig {
  score::Reduce reduce = score::Reduce::kMean;
};

template <class Visitor>
void Visit(HeavyConfig& c, Visitor& v) {
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

score::ScorerPtr Heavy(const HeavyConfig& c) { return score::Heavy(c.reduce); }

Result<score::ScorerPtr> Window(const score::WindowConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("window", c.kernel));
  return score::Window(c);
}

// Selects whole blocks by their mean score: one round over all of them.
struct BlocksConfig {
  int block = 32;
};

template <class Visitor>
void Visit(BlocksConfig& c, Visitor& v) {
  v("block", c.block, "entries per block", Range{1, 1 << 20});
}

select::SelectorPtr Blocks(const BlocksConfig& c) {
  return select::Rounds({.block = c.block, .rounds = {1}});
}

merge::MergerPtr Drop() { return nullptr; }

// Merges into the nearest entry; the threshold is an exponential moving average of similarities.
struct EmaConfig {
  double beta = 0.5;
};

template <class Visitor>
void Visit(EmaConfig& c, Visitor& v) {
  v("beta", c.beta, "share of the newest similarity in the threshold", Range{0, 1});
}

merge::MergerPtr Ema(const EmaConfig& c) { return merge::Nearest({.beta = c.beta}); }

const std::vector<Listed<score::ScorerPtr>>& Scores() {
  static const std::vector<Listed<score::ScorerPtr>> list = {
      Part("age", score::Age),
      Part("heavy", Heavy),
      Part("history", score::History),
      Part("key_difference", score::KeyDifference),
      Part("key_norm", score::KeyNorm),
      Part("last", score::LastRow),
      Part("running_mean", score::RunningMean),
      Part("window", Window),
  };
  return list;
}

const std::vector<Listed<budget::BudgeterPtr>>& Budgets() {
  static const std::vector<Listed<budget::BudgeterPtr>> list = {
      Part("burst", budget::Burst),     Part("competing", budget::Competing),
      Part("norm", budget::Norm),       Part("pyramid", budget::Pyramid),
      Part("uniform", budget::Uniform),
  };
  return list;
}

const std::vector<Listed<select::SelectorPtr>>& Selectors() {
  static const std::vector<Listed<select::SelectorPtr>> list = {
      Part("blocks", Blocks),
      Part("gate", select::Gate),
      Part("pair", select::Pair),
      Part("representatives", select::Representatives),
      Part("rounds", select::Rounds),
      Part("topk", select::TopK),
      Part("tree_blocks", select::TreeBlocks),
  };
  return list;
}

const std::vector<Listed<merge::MergerPtr>>& Mergers() {
  static const std::vector<Listed<merge::MergerPtr>> list = {
      Part("ema", Ema),   Part("nearest", merge::Nearest), Part("next", merge::Next),
      Part("none", Drop), Part("spread", merge::Spread),
  };
  return list;
}

template <class Ptr>
Choices ListNames(const std::vector<Listed<Ptr>>& list) {
  Choices names;
  for (const Listed<Ptr>& part : list) names.push_back(part.name);
  return names;
}

// Errors: no such part (the message lists the parts), or wrong parameters.
template <class Ptr>
Result<Ptr> MakePart(std::string_view kind, const std::string& text,
                     const std::vector<Listed<Ptr>>& list, std::string_view method = "custom") {
  const std::string context = std::string(method) + ": " + std::string(kind) + ": ";
  const Result<Spec> spec = ParsePart(text);
  if (!spec) return Error{context + spec.error().message};
  std::string known;
  for (const Listed<Ptr>& part : list) {
    known += (known.empty() ? "" : ", ") + std::string(part.name);
    if (part.name != spec->name) continue;
    Result<Ptr> made = part.make(*spec);
    if (!made) return Error{context + made.error().message};
    return made;
  }
  return Error{context + "found '" + spec->name + "', expected one of " + known};
}

struct CustomConfig {
  std::string score = "window";
  std::string budget = "uniform";
  std::string select = "topk";
  std::string merge = "none";
  PositionMode positions = PositionMode::kOriginal;
  When when = When::kPrefill;
  int sinks = 0;
  int recent = -1;
};

template <class Visitor>
void Visit(CustomConfig& c, Visitor& v) {
  v("score", c.score, "how important an entry is", ListNames(Scores()));
  v("budget", c.budget, "how many entries each layer and head keeps", ListNames(Budgets()));
  v("select", c.select, "which entries are evicted", ListNames(Selectors()));
  v("merge", c.merge, "how evicted entries are merged", ListNames(Mergers()));
  VisitPositions(c.positions, v);
  v("when", c.when, "once after the prompt, or in every step too", Choices{"prefill", "step"});
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent,
    "newest tokens that always stay; -1: those whose attention the score reads, if there are "
    "several",
    Range{-1, 1 << 20});
}

// Error: the parts cannot work together.
Result<void> CheckParts(const CustomConfig& c, const Composition& parts) {
  kernels::TapSpec prefill, decode;
  std::vector<Needs> needs = {parts.score->needs(), parts.budget->needs(), parts.select->needs()};
  if (parts.merge) needs.push_back(parts.merge->needs());
  for (const Needs& part : needs) {
    if (!CanServe(prefill, part.prefill) || !CanServe(decode, part.decode)) {
      return Error{
          "custom: these parts need different reductions over the query heads, which one pass of "
          "attention cannot give; set the same parameter 'reduce' for all"};
    }
    prefill = Join(prefill, part.prefill);
    decode = Join(decode, part.decode);
  }
  if (c.when == When::kStep && needs[0].prefill.any() && !needs[0].decode.any()) {
    return Error{"custom: when=step: the score '" + c.score +
                 "' only knows what the last tokens of a prompt attend to"};
  }
  if (parts.merge && parts.merge->merges_keys() && c.positions == PositionMode::kReassigned) {
    return Error{"custom: merge '" + c.merge +
                 "' merges keys, which then have no single position; expected positions=original"};
  }
  return {};
}

Result<MethodPtr> Make(const CustomConfig& c) {
  Composition parts;
  WINNOW_ASSIGN(parts.score, MakePart("score", c.score, Scores()));
  WINNOW_ASSIGN(parts.budget, MakePart("budget", c.budget, Budgets()));
  WINNOW_ASSIGN(parts.select, MakePart("select", c.select, Selectors()));
  WINNOW_ASSIGN(parts.merge, MakePart("merge", c.merge, Mergers()));
  WINNOW_TRY(CheckParts(c, parts));
  const int n_voters = parts.score->needs().prefill.last_rows;
  const bool window = c.recent < 0 && c.when == When::kPrefill && n_voters > 1;
  parts.protected_entries = {.sinks = c.sinks, .recent = window ? n_voters : std::max(c.recent, 0)};
  if (window) parts.protect = WindowWithin;
  parts.when = c.when;
  parts.storage = {.positions = c.positions};
  // A window without sinks shrinks with the budget, so that every budget is enough.
  parts.min_budget = window && c.sinks == 0 ? 1 : parts.protected_entries.MinBudget();
  return Compose(std::move(parts));
}

Promise Promises(const CustomConfig& c, int64_t) {
  const int64_t recent = std::max(c.recent, 0);
  Merging merging = Merging::kAny;
  if (c.merge == "none") merging = Merging::kNone;
  if (c.merge == "next" || c.merge == "nearest" || c.merge == "ema") merging = Merging::kHull;
  return {.exact = c.budget == "uniform" && c.select == "topk",
          .sinks = c.sinks,
          .recent = recent,
          .merging = merging};
}

}  // namespace

Choices ScoreNames() { return ListNames(Scores()); }
Choices BudgetNames() { return ListNames(Budgets()); }

Result<score::ScorerPtr> ScoreByName(std::string_view method, const std::string& text) {
  return MakePart("score", text, Scores(), method);
}

Result<budget::BudgeterPtr> BudgetByName(std::string_view method, const std::string& text) {
  return MakePart("budget", text, Budgets(), method);
}

MethodEntry Custom() {
  return Entry<CustomConfig, Make, Promises>(
      "custom", "any parts, combined by name", "ours",
      {"score=heavy,select=topk,sinks=2,recent=8,when=step",
       "score=running_mean,budget=competing,sinks=2,positions=reassigned,when=step",
       "score=running_mean,select=pair,merge=next,recent=8,when=step"});
}

}  // namespace winnow::compression::methods

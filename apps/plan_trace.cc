#include "plan_trace.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "report/record.h"

namespace winnow::apps {
namespace {

// [row]: the text position of its entry, the oldest one if several entries share the row.
std::vector<cache::Position> PositionsOfRows(const cache::Cache& cache, int layer, int head) {
  const std::span<const cache::Position> positions = cache.positions(layer, head);
  const cache::SlotRows rows = cache.rows(layer, head);
  if (rows.empty()) return {positions.begin(), positions.end()};
  std::vector<cache::Position> oldest(static_cast<size_t>(cache.n_rows(layer, head)),
                                      std::numeric_limits<cache::Position>::max());
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    cache::Position& position = oldest[static_cast<size_t>(rows[slot])];
    position = std::min(position, positions[slot]);
  }
  return oldest;
}

report::Record HeadRecord(const cache::HeadPlan& plan, const cache::Cache& cache, int layer,
                          int head) {
  const std::span<const cache::Position> positions = cache.positions(layer, head);
  report::List evicted;
  for (const cache::Slot slot : plan.evict) {
    evicted.emplace_back(int64_t{positions[static_cast<size_t>(slot)]});
  }
  report::Record record = {
      {"kept", cache.n_slots(layer, head) - static_cast<int64_t>(plan.evict.size())},
      {"evicted", std::move(evicted)}};
  if (plan.merges.empty() && plan.shares.empty()) return record;

  const std::vector<cache::Position> of_row = PositionsOfRows(cache, layer, head);
  const auto position = [&](cache::Slot row) { return int64_t{of_row[static_cast<size_t>(row)]}; };
  report::List merged;
  size_t next = 0;
  for (const cache::HeadPlan::Merge& merge : plan.merges) {
    report::List from, key_weights, value_weights;
    for (int i = 0; i < merge.n_sources; ++i) {
      const cache::HeadPlan::Source& source = plan.sources[next++];
      from.emplace_back(position(source.row));
      key_weights.emplace_back(static_cast<double>(source.key_weight));
      value_weights.emplace_back(static_cast<double>(source.value_weight));
    }
    merged.emplace_back(report::Record{{"from", std::move(from)},
                                       {"into", position(merge.into)},
                                       {"key_weights", std::move(key_weights)},
                                       {"value_weights", std::move(value_weights)}});
  }
  if (!merged.empty()) record.Add("merged", std::move(merged));
  report::List shared;
  for (const cache::HeadPlan::Share& share : plan.shares) {
    shared.emplace_back(
        report::Record{{"entry", int64_t{positions[static_cast<size_t>(share.slot)]}},
                       {"with", position(share.row)},
                       {"factor", static_cast<double>(share.factor)}});
  }
  if (!shared.empty()) record.Add("shared", std::move(shared));
  return record;
}

}  // namespace

Result<std::unique_ptr<PlanTrace>> PlanTrace::Create(const std::string& path) {
  WINNOW_ASSIGN(OutputFile file, OutputFile::Create(path));
  return std::unique_ptr<PlanTrace>(new PlanTrace(std::move(file)));
}

void PlanTrace::Write(const cache::Plan& plan, const runtime::PlanContext& context) {
  report::List heads;
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    heads.emplace_back(
        HeadRecord(plan.heads[head], context.cache, plan.layer, static_cast<int>(head)));
  }
  const bool prefill = context.phase == compression::Phase::kPrefill;
  const report::Record record = {{"step", context.n_seen},
                                 {"phase", prefill ? "prefill" : "decode"},
                                 {"layer", plan.layer},
                                 {"heads", std::move(heads)}};
  if (written_) written_ = file_.Write(report::ToJson(record) + "\n");
}

Result<void> PlanTrace::Finish() {
  WINNOW_TRY(written_);
  return file_.Commit();
}

}  // namespace winnow::apps

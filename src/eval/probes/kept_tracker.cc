#include "eval/probes/kept_tracker.h"

#include <algorithm>
#include <utility>

namespace winnow::eval {
namespace {

using cache::HeadPlan;
using cache::Position;
using report::TokenMap;

}  // namespace

void KeptTracker::Cover(const cache::Cache& cache) {
  shape_ = cache.config().shape;
  fates_.resize(static_cast<size_t>(shape_.n_layers) * static_cast<size_t>(shape_.n_kv_heads));
}

runtime::CompressionOptions KeptTracker::Following(runtime::CompressionOptions options) {
  options.on_plan = [this, before = std::move(options.on_plan)](
                        const cache::Plan& plan, const runtime::PlanContext& context) {
    if (before) before(plan, context);
    Follow(plan, context);
  };
  return options;
}

void KeptTracker::Follow(const cache::Plan& plan, const runtime::PlanContext& context) {
  Cover(context.cache);
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    const int kv_head = static_cast<int>(head);
    const size_t place = static_cast<size_t>(plan.layer * shape_.n_kv_heads + kv_head);
    FollowHead(plan.heads[head], context, plan.layer, kv_head, fates_[place]);
  }
}

void KeptTracker::FollowHead(const HeadPlan& plan, const runtime::PlanContext& context, int layer,
                             int kv_head, EntryStates& fates) {
  if (plan.empty()) return;
  const auto positions = context.cache.positions(layer, kv_head);
  const auto rows = context.cache.rows(layer, kv_head);
  const auto fate = [&](cache::Slot slot) -> EntryState& {
    const auto position = static_cast<size_t>(positions[static_cast<size_t>(slot)]);
    if (position >= fates.size()) fates.resize(position + 1);
    return fates[position];
  };
  // From now on, an entry that is stored in another entry's row survives only as part of that row.
  for (const HeadPlan::Share& share : plan.shares) {
    if (rows[static_cast<size_t>(share.slot)] != share.row) fate(share.slot).merged = true;
  }
  for (const cache::Slot slot : plan.evict) {
    fate(slot).evicted_at = static_cast<int32_t>(context.n_seen);
    fate(slot).merged = false;
  }
  if (!rows.empty())
    return;  // merges name rows here, not entries; the shares above mark the sources
  size_t next = 0;
  for (const HeadPlan::Merge& merge : plan.merges) {
    for (int i = 0; i < merge.n_sources; ++i) {
      const cache::Slot source = plan.sources[next++].row;
      const bool goes = std::find(plan.evict.begin(), plan.evict.end(), source) != plan.evict.end();
      if (goes && source != merge.into) fate(source).merged = true;
    }
  }
}

void KeptTracker::Close(const cache::Cache& cache, int64_t n_tokens) {
  Cover(cache);
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int head = 0; head < shape_.n_kv_heads; ++head) {
      std::vector<bool> has_entry(static_cast<size_t>(n_tokens), false);
      for (const Position position : cache.positions(layer, head)) {
        if (position < n_tokens) has_entry[static_cast<size_t>(position)] = true;
      }
      EntryStates& fates = fates_[static_cast<size_t>(layer * shape_.n_kv_heads + head)];
      fates.resize(std::max(fates.size(), has_entry.size()));
      for (size_t i = 0; i < has_entry.size(); ++i) {
        if (!has_entry[i] && fates[i].evicted_at == kStays) fates[i].evicted_at = kNeverStored;
      }
    }
  }
}

const KeptTracker::EntryStates& KeptTracker::HeadFates(int layer, int kv_head) const {
  return fates_[static_cast<size_t>(layer * shape_.n_kv_heads + kv_head)];
}

int32_t KeptTracker::evicted_at(int layer, int kv_head, int64_t position) const {
  const EntryStates& fates = HeadFates(layer, kv_head);
  const auto place = static_cast<size_t>(position);
  return place < fates.size() ? fates[place].evicted_at : kStays;
}

std::vector<std::vector<std::vector<int32_t>>> KeptTracker::Evictions(int64_t n_tokens) const {
  std::vector<std::vector<std::vector<int32_t>>> all(static_cast<size_t>(shape_.n_layers));
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int head = 0; head < shape_.n_kv_heads; ++head) {
      auto& of_head = all[static_cast<size_t>(layer)].emplace_back();
      for (int64_t i = 0; i < n_tokens; ++i) of_head.push_back(evicted_at(layer, head, i));
    }
  }
  return all;
}

std::vector<std::vector<std::string>> KeptTracker::States(int64_t n_tokens) const {
  std::vector<std::vector<std::string>> states(static_cast<size_t>(shape_.n_layers));
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int head = 0; head < shape_.n_kv_heads; ++head) {
      std::string of_head(static_cast<size_t>(n_tokens), TokenMap::kKept);
      const EntryStates& fates = HeadFates(layer, head);
      for (size_t i = 0; i < std::min(fates.size(), of_head.size()); ++i) {
        if (fates[i].evicted_at != kStays) of_head[i] = TokenMap::kEvicted;
        if (fates[i].merged) of_head[i] = TokenMap::kMerged;
      }
      states[static_cast<size_t>(layer)].push_back(std::move(of_head));
    }
  }
  return states;
}

}  // namespace winnow::eval

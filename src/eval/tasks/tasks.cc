#include "eval/tasks/tasks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace winnow::eval {

std::span<const Task> Tasks() {
  static const std::vector<Task> kTasks = {
      RecallTask(),  PerplexityTask(),  KldTask(),        NeedleTask(),         PasskeyTask(),
      RulerTask(),   KvRetrievalTask(), LongEvalTask(),   LongBenchTask(),      LEvalTask(),
      Gsm8kTask(),   CoqaTask(),        TruthfulQaTask(), MultipleChoiceTask(), TheoremQaTask(),
      MtBenchTask(), ThroughputTask()};
  return kTasks;
}

const Task* FindTask(std::string_view name) {
  const std::span<const Task> tasks = Tasks();
  const auto found =
      std::find_if(tasks.begin(), tasks.end(), [&](const Task& task) { return task.name == name; });
  return found == tasks.end() ? nullptr : &*found;
}

const Option* FindOption(const Task& task, std::string_view name) {
  const auto found = std::find_if(task.options.begin(), task.options.end(),
                                  [&](const Option& option) { return option.name == name; });
  return found == task.options.end() ? nullptr : &*found;
}

std::string TaskContext::Word(std::string_view option) const {
  return option_word == nullptr ? std::string(option) : option_word(option);
}

std::vector<size_t> Choose(size_t n_items, std::optional<int64_t> n, uint64_t seed) {
  std::vector<size_t> items(n_items);
  std::iota(items.begin(), items.end(), size_t{0});
  if (!n || static_cast<size_t>(*n) >= n_items) return items;
  Rng rng(seed);
  const auto n_chosen = static_cast<size_t>(*n);
  for (size_t i = 0; i < n_chosen; ++i) std::swap(items[i], items[i + rng.Below(n_items - i)]);
  items.resize(n_chosen);
  std::sort(items.begin(), items.end());
  return items;
}

std::vector<Sample> ChooseSamples(std::vector<Sample> samples, const SampleOptions& options) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < samples.size(); ++i) groups[samples[i].group].push_back(i);
  std::vector<size_t> chosen;
  for (const auto& [name, members] : groups) {
    for (const size_t i : Choose(members.size(), options.n_samples, options.seed)) {
      chosen.push_back(members[i]);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<Sample> kept;
  kept.reserve(chosen.size());
  for (const size_t i : chosen) kept.push_back(std::move(samples[i]));
  return kept;
}

}  // namespace winnow::eval

#pragma once

#include <string>
#include <vector>

#include "eval/run/runner.h"
#include "eval/tasks/task.h"

// Fake results for tests, without a run.
namespace winnow::eval {

// A sample, its scores under both variants (below 0: could not be run) and their weight.
struct FakeCase {
  std::string group;
  double full = 0, other = 0, weight = 1;
};

inline Task FakeTask(Column::Kind kind, bool averages_groups = true) {
  Task task;
  task.name = "fake";
  task.columns = {{.name = "score", .title = "score", .kind = kind}};
  task.averages_groups = averages_groups;
  return task;
}

// Two variants, the second with half the first one's bytes. The task must outlive the results.
inline EvalResults FakeResults(const Task& task, const std::vector<FakeCase>& cases) {
  EvalResults results;
  results.task = &task;
  results.variants = {{"full", "", "f16", {}}, {"h2o", "size 8", "f16", {}}};
  for (const FakeCase& one : cases) {
    EvaluatedSample& sample = results.samples.emplace_back();
    sample.id = std::to_string(results.samples.size());
    sample.group = one.group;
    for (const double value : {one.full, one.other}) {
      SampleResult result;
      if (value < 0) {
        result.problem = "does not fit";
      } else {
        result.outcome.scores = {{task.columns[0].name, value, one.weight}};
        result.outcome.cache_bytes = sample.results.empty() ? 100 : 50;
        result.outcome.cache_bytes_with_lists = result.outcome.cache_bytes + 10;
        result.outcome.cache_bytes_full_f16 = 200;
      }
      sample.results.push_back(result);
    }
  }
  return results;
}

// Renames the scores of the samples of a group.
inline void RenameScores(EvalResults& results, const std::string& group, const std::string& name) {
  for (EvaluatedSample& sample : results.samples) {
    if (sample.group != group) continue;
    for (auto& result : sample.results) {
      for (Score& score : result->outcome.scores) score.name = name;
    }
  }
}

}  // namespace winnow::eval

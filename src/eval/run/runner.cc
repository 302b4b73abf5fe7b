#include "eval/run/runner.h"

#include <memory>
#include <utility>

#include "eval/run/equal_bytes.h"

namespace winnow::eval {

std::string Variant::Name() const {
  std::string name = method;
  if (!budget.empty()) name += " " + budget;
  if (cache_types != "f16") name += " " + cache_types;
  return name;
}

namespace {

// Whether `variant` differs from `before` only in its share of the full cache's bytes.
bool IsNextBudget(const Variant& before, const Variant& variant) {
  return before.equal_bytes > 0 && variant.equal_bytes > 0 && before.method == variant.method &&
         before.cache_types == variant.cache_types;
}

class Runner {
 public:
  Runner(runtime::Engine& engine, const Task& task, const std::vector<Variant>& variants,
         const EvalOptions& options, int64_t n_all)
      : engine_(engine), task_(task), variants_(variants), options_(options), n_left_(n_all) {}

  // False: stopped.
  Result<bool> Run(const Sample& sample, EvaluatedSample& evaluated) {
    auto workload = sample.make();
    UndecidedPromptCache learnt;
    for (size_t i = 0; i < variants_.size(); ++i) {
      ResultKey key = {.version = options_.version,
                       .model_hash = options_.model_hash,
                       .task = std::string(task_.name),
                       .method = variants_[i].method,
                       .budget = variants_[i].budget,
                       .cache_types = variants_[i].cache_types,
                       .sample = sample.id,
                       .configuration = variants_[i].configuration};
      // Free the undecided prompt, which is a full cache, unless this variant can use it.
      if (i > 0 && !IsNextBudget(variants_[i - 1], variants_[i])) learnt = {};
      if (workload) key.fingerprint = WorkloadFingerprint(**workload, variants_[i]);
      const SampleResult* known = options_.results ? options_.results->Find(key) : nullptr;
      if (known != nullptr) {
        evaluated.results[i] = *known;
        ++n_known_;
        NoteBuild(evaluated.results[i]->build);
        --n_left_;
        continue;
      }
      SampleResult result;
      if (!workload) {
        result.problem = workload.error().message;
      } else {
        const bool finished = RunOne(**workload, variants_[i], key, learnt, result);
        WINNOW_TRY(points_written_);
        if (!finished) return false;
      }
      if (options_.results != nullptr) {
        WINNOW_TRY(options_.results->Append(key, result, options_.about));
      }
      evaluated.results[i] = std::move(result);
      ++n_done_;
      if (!KeepGoing(0)) return false;
    }
    return true;
  }

  void Count(EvalResults& results) const {
    results.n_known = n_known_;
    results.n_of_other_builds = n_of_other_builds_;
    results.other_build = other_build_;
  }

 private:
  // Covers the workload and what the key lacks: the context and, for workloads that compare with
  // the full cache, the first variant.
  uint64_t WorkloadFingerprint(const Workload& workload, const Variant& variant) const {
    Fingerprint all;
    all.Add(static_cast<int64_t>(workload.fingerprint())).Add(variant.options.context);
    if (workload.against_full()) {
      const Variant& base = variants_.front();
      all.Add(base.method).Add(base.budget).Add(base.cache_types).Add(base.options.context);
    }
    return all.value();
  }

  // Leaves a build name only in results of other builds.
  void NoteBuild(std::string& build) {
    if (build == options_.build) {
      build.clear();
      return;
    }
    if (build.empty()) build = "unknown";
    ++n_of_other_builds_;
    other_build_ = build;
  }

  bool KeepGoing(double of_this) const {
    if (!options_.keep_going) return true;
    return options_.keep_going((static_cast<double>(n_done_) + of_this) /
                               static_cast<double>(std::max<int64_t>(1, n_left_)));
  }

  // False: stopped.
  bool RunOne(Workload& workload, const Variant& variant, const ResultKey& key,
              UndecidedPromptCache& learnt, SampleResult& result) {
    RunContext run_context = {engine_, variant.options, variants_.front().options,
                              [this](double done) { return points_written_ && KeepGoing(done); }};
    run_context.equal_bytes = variant.equal_bytes;
    run_context.learnt = &learnt;
    if (options_.results != nullptr) {
      run_context.on_point = [&](const report::Record& point) {
        if (points_written_) points_written_ = options_.results->AppendPoint(key, point);
      };
    }
    auto outcome = workload.Run(run_context);
    if (!outcome) {
      result.problem = outcome.error().message;
      return true;
    }
    if (outcome->stopped) return false;
    result.outcome = std::move(outcome).value();
    if (const auto& found = result.outcome.quality) {
      result.outcome.details.Add("quality",
                                 report::Record{{"budget", found->budget},
                                                {"share", found->share},
                                                {"kl", found->estimate.kl},
                                                {"standard_error", found->estimate.standard_error},
                                                {"p99", found->estimate.p99},
                                                {"tokens", found->estimate.n_tokens},
                                                {"tried", int64_t{found->n_tried}}});
    }
    return true;
  }

  runtime::Engine& engine_;
  const Task& task_;
  const std::vector<Variant>& variants_;
  const EvalOptions& options_;
  int64_t n_left_ = 0;   // results not known beforehand, done or not
  int64_t n_done_ = 0;   // of these
  int64_t n_known_ = 0;  // found in the file
  int64_t n_of_other_builds_ = 0;
  std::string other_build_;
  Result<void> points_written_;
};

}  // namespace

Result<EvalResults> Evaluate(runtime::Engine& engine, const Task& task,
                             const std::vector<Sample>& samples,
                             const std::vector<Variant>& variants, const EvalOptions& options) {
  EvalResults results;
  results.task = &task;
  results.variants = variants;
  results.about = options.about;
  for (const Sample& sample : samples) {
    results.samples.push_back(
        {.id = sample.id,
         .group = sample.group,
         .labels = sample.labels,
         .number = sample.number,
         .results = std::vector<std::optional<SampleResult>>(variants.size())});
  }
  Runner runner(engine, task, variants, options,
                static_cast<int64_t>(samples.size() * variants.size()));
  for (size_t i = 0; i < samples.size() && !results.stopped; ++i) {
    WINNOW_ASSIGN(const bool finished, runner.Run(samples[i], results.samples[i]));
    results.stopped = !finished;
  }
  runner.Count(results);
  return results;
}

}  // namespace winnow::eval

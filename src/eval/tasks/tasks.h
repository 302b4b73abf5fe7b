#pragma once

#include "eval/tasks/task.h"

// One function per task. docs/eval.md describes the tasks.
namespace winnow::eval {

Task RecallTask();
Task PerplexityTask();
Task KldTask();
Task NeedleTask();
Task PasskeyTask();
Task RulerTask();
Task KvRetrievalTask();
Task LongEvalTask();
Task LongBenchTask();
Task LEvalTask();
Task Gsm8kTask();
Task CoqaTask();
Task TruthfulQaTask();
Task MultipleChoiceTask();
Task TheoremQaTask();
Task MtBenchTask();
Task ThroughputTask();

}  // namespace winnow::eval

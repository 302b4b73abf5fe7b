#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "eval/run/runner.h"

namespace winnow::eval {

// Writes the answers of mt-bench as FastChat's judge reads them (its data/mt_bench/model_answer): a
// file FOLDER/MODEL_ID.jsonl for every variant, one question per line. A model id joins `model` and
// the variant's name. `seconds`: time of the run, since 1970. Leaves out questions that were not
// answered. Error: a file that cannot be written.
Result<void> WriteFastChatAnswers(const EvalResults& results, const std::string& model,
                                  double seconds, const std::string& folder);

}  // namespace winnow::eval

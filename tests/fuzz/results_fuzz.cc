// Results files: reads arbitrary bytes, or writes a result made of the input and reads it back.
//
// An input that begins with '{', a space or a line feed is a file; any other is made into a result.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "eval/run/results_file.h"
#include "fuzzed_data.h"
#include "temporary_folder.h"

namespace {

using winnow::eval::ResultKey;
using winnow::eval::ResultsFile;
using winnow::eval::SampleResult;
using winnow::eval::Score;

// ASCII only: other bytes need not come back.
std::string Text(FuzzedData& input) {
  std::string text = input.ConsumeRandomLengthString(12);
  for (char& c : text) c = static_cast<char>(c & 0x7F);
  return text;
}

double Number(FuzzedData& input) {
  switch (input.ConsumeIntegralInRange<int>(0, 2)) {
    case 0:
      return static_cast<double>(input.ConsumeIntegral<int64_t>());
    case 1:
      return input.ConsumeNumber();
    default:
      return input.ConsumeProbability();
  }
}

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void RoundTrip(const std::string& path, FuzzedData& input) {
  ResultKey key = {.version = Text(input),
                   .model_hash = Text(input),
                   .task = Text(input),
                   .method = Text(input),
                   .budget = Text(input),
                   .cache_types = Text(input),
                   .sample = Text(input),
                   .configuration = Text(input),
                   .fingerprint = input.ConsumeIntegral<uint64_t>()};
  SampleResult result;
  if (input.ConsumeIntegralInRange<int>(0, 7) == 0) {
    result.problem = Text(input);
  } else {
    const int n_scores = input.ConsumeIntegralInRange<int>(0, 4);
    for (int i = 0; i < n_scores; ++i) {
      const double weight = input.ConsumeBool() ? 1 : std::abs(Number(input));
      result.outcome.scores.push_back({"score" + std::to_string(i), Number(input), weight});
    }
    result.outcome.cache_bytes = input.ConsumeIntegral<int64_t>();
    result.outcome.cache_bytes_full_f16 = input.ConsumeIntegral<int64_t>();
    result.outcome.kept = Number(input);
  }
  {
    auto file = ResultsFile::Open(path);
    WINNOW_CHECK(file.has_value());
    WINNOW_CHECK(file->Append(key, result, {{"model", Text(input)}}).has_value());
    WINNOW_CHECK(file->AppendPoint(key, {{"at", 1}}).has_value());
  }
  const auto again = ResultsFile::Open(path);
  WINNOW_CHECK(again.has_value() && again->n_skipped_lines() == 0);
  const SampleResult* found = again->Find(key);
  WINNOW_CHECK(found != nullptr && found->problem == result.problem);
  WINNOW_CHECK(found->outcome.scores.size() == result.outcome.scores.size());
  for (size_t i = 0; i < result.outcome.scores.size(); ++i) {
    const Score& written = result.outcome.scores[i];
    const Score& read = found->outcome.scores[i];
    WINNOW_CHECK(read.name == written.name);
    WINNOW_CHECK(Same(read.value, written.value) && Same(read.weight, written.weight));
  }
  WINNOW_CHECK(found->outcome.cache_bytes == result.outcome.cache_bytes);
  WINNOW_CHECK(Same(found->outcome.kept, result.outcome.kept));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const winnow::fuzz::TemporaryFolder folder;
  const std::string path = folder.Path("results.jsonl");
  folder.Clear();
  if (size == 0) return 0;
  if (data[0] == '{' || data[0] == ' ' || data[0] == '\n') {
    folder.Write("results.jsonl", {reinterpret_cast<const char*>(data), size});
    // Lines that are no results are skipped, or give an error with their location; opening again
    // must find the same.
    const auto file = ResultsFile::Open(path);
    const auto again = ResultsFile::Open(path);
    WINNOW_CHECK(file.has_value() == again.has_value());
    if (file) WINNOW_CHECK(file->n_skipped_lines() == again->n_skipped_lines());
    return 0;
  }
  FuzzedData input(data, size);
  RoundTrip(path, input);
  return 0;
}

// Files of log-probabilities (--kl-base): reads arbitrary bytes to their end, and writes rows of
// any numbers and reads them back.
//
// An input that begins with '_', as the format does, is a file; any other is made into rows.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "eval/metrics/log_probs_file.h"
#include "fuzzed_data.h"
#include "temporary_folder.h"

namespace {

using winnow::eval::LogProbsHeader;
using winnow::eval::LogProbsReader;
using winnow::eval::LogProbsWriter;

void ReadAll(const std::string& path) {
  auto reader = LogProbsReader::Open(path);
  if (!reader) return;
  const LogProbsHeader header = reader->header();
  WINNOW_CHECK(static_cast<int64_t>(header.tokens.size()) == header.window * header.n_windows);
  std::vector<float> row(static_cast<size_t>(header.vocabulary));
  for (int64_t i = 0; i < header.n_windows * header.rows_per_window(); ++i) {
    if (!reader->Read(row)) return;
  }
}

float Logit(FuzzedData& input) {
  const float odd[] = {1e6f, -1e6f, 1e30f, -1e30f, 3e-39f, 0};
  const auto byte = input.ConsumeIntegral<uint8_t>();
  return byte < std::size(odd) ? odd[byte] : static_cast<float>(byte) / 8 - 16;
}

void RoundTrip(const std::string& path, FuzzedData& input) {
  LogProbsHeader header = {.window = input.ConsumeIntegralInRange<int64_t>(3, 8),
                           .vocabulary = input.ConsumeIntegralInRange<int64_t>(1, 9),
                           .n_windows = input.ConsumeIntegralInRange<int64_t>(1, 3),
                           .tokens = {}};
  header.tokens.assign(static_cast<size_t>(header.window * header.n_windows), 0);
  std::vector<std::vector<float>> rows(
      static_cast<size_t>(header.n_windows * header.rows_per_window()));
  auto writer = LogProbsWriter::Create(path, header);
  WINNOW_CHECK(writer.has_value());
  for (std::vector<float>& row : rows) {
    for (int64_t i = 0; i < header.vocabulary; ++i) row.push_back(Logit(input));
    WINNOW_CHECK(writer->Write(row).has_value());
  }
  WINNOW_CHECK(writer->Finish().has_value());
  auto reader = LogProbsReader::Open(path);
  WINNOW_CHECK(reader.has_value() && reader->header().tokens == header.tokens);
  std::vector<float> read(static_cast<size_t>(header.vocabulary));
  for (const std::vector<float>& row : rows) {
    WINNOW_CHECK(reader->Read(read).has_value());
    const bool finite = std::ranges::all_of(row, [](float x) { return std::abs(x) < 1e6f; });
    double sum = 0;
    for (const float log_prob : read) sum += std::exp(static_cast<double>(log_prob));
    // Small probabilities share the lowest step, so the sum may exceed 1 a little.
    if (finite) WINNOW_CHECK(std::abs(sum - 1) < 1e-2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const winnow::fuzz::TemporaryFolder folder;
  if (size == 0) return 0;
  if (data[0] == '_') {
    ReadAll(folder.Write("base.bin", {reinterpret_cast<const char*>(data), size}));
    return 0;
  }
  FuzzedData input(data, size);
  RoundTrip(folder.Path("base.bin"), input);
  return 0;
}

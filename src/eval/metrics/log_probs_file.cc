#include "eval/metrics/log_probs_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/log_sum_exp.h"

namespace winnow::eval {
namespace {

constexpr char kMagic[] = "_logits_";
constexpr size_t kMagicBytes = 8;
constexpr float kRange = 16;  // nats below the largest that can be told apart
constexpr float kSteps = 65535;
constexpr float kRoundingLeft = 0.01f;
constexpr int64_t kMaxTokens = int64_t{1} << 40;  // of a plausible header

size_t RowBytes(int64_t vocabulary) {
  return 2 * sizeof(float) + sizeof(uint16_t) * static_cast<size_t>((vocabulary + 1) / 2 * 2);
}

}  // namespace

Result<LogProbsWriter> LogProbsWriter::Create(const std::string& path,
                                              const LogProbsHeader& header) {
  WINNOW_CHECK(static_cast<int64_t>(header.tokens.size()) == header.n_windows * header.window);
  WINNOW_ASSIGN(OutputFile file, OutputFile::Create(path));
  LogProbsWriter writer(std::move(file));
  writer.row_.resize(RowBytes(header.vocabulary));
  const int32_t numbers[] = {static_cast<int32_t>(header.window),
                             static_cast<int32_t>(header.vocabulary),
                             static_cast<int32_t>(header.n_windows)};
  WINNOW_TRY(writer.file_.Write({kMagic, kMagicBytes}));
  WINNOW_TRY(writer.file_.Write({reinterpret_cast<const char*>(numbers), sizeof(numbers)}));
  WINNOW_TRY(writer.file_.Write({reinterpret_cast<const char*>(header.tokens.data()),
                                 header.tokens.size() * sizeof(int32_t)}));
  return writer;
}

Result<void> LogProbsWriter::Write(std::span<const float> logits) {
  WINNOW_CHECK(RowBytes(static_cast<int64_t>(logits.size())) == row_.size());
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
    return Error{"the model gives NaN or infinite logits: there are no log-probabilities to write"};
  }
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  const float min = std::max(*low, *high - kRange);
  const float range[] = {(*high - min) / kSteps,
                         static_cast<float>(min - LogSumExp(logits))};  // scale, lowest
  char* out = row_.data();
  std::memcpy(out, range, sizeof(range));
  out += sizeof(range);
  for (const float logit : logits) {
    const float step = range[0] > 0 ? std::nearbyint((logit - min) / range[0]) : 0;
    const uint16_t stored = static_cast<uint16_t>(std::clamp(step, 0.0f, kSteps));
    std::memcpy(out, &stored, sizeof(stored));
    out += sizeof(stored);
  }
  return file_.Write(row_);
}

Result<void> LogProbsWriter::Finish() { return file_.Commit(); }

Result<LogProbsReader> LogProbsReader::Open(const std::string& path) {
  LogProbsReader reader;
  reader.path_ = path;
  reader.file_.open(path, std::ios::binary | std::ios::ate);
  if (!reader.file_) return Error{path + ": cannot be read"};
  const int64_t file_bytes = reader.file_.tellg();
  reader.file_.seekg(0);
  char magic[kMagicBytes] = {};
  int32_t numbers[3] = {};
  reader.file_.read(magic, sizeof(magic));
  reader.file_.read(reinterpret_cast<char*>(numbers), sizeof(numbers));
  if (!reader.file_ || !std::equal(magic, magic + kMagicBytes, kMagic)) {
    return Error{path + ": not a file of log-probabilities (it does not begin with " + kMagic +
                 ")"};
  }
  LogProbsHeader& header = reader.header_;
  header.window = numbers[0];
  header.vocabulary = numbers[1];
  header.n_windows = numbers[2];
  // A window without scored rows would leave the vocabulary unchecked against the file's length.
  if (header.rows_per_window() < 1 || header.vocabulary < 1 || header.n_windows < 1 ||
      header.window * header.n_windows > kMaxTokens) {
    return Error{path + ": impossible sizes: " + std::to_string(header.n_windows) + " windows of " +
                 std::to_string(header.window) + " tokens, vocabulary " +
                 std::to_string(header.vocabulary)};
  }
  const double wanted = sizeof(magic) + sizeof(numbers) +
                        static_cast<double>(header.n_windows) *
                            (4.0 * static_cast<double>(header.window) +
                             static_cast<double>(header.rows_per_window()) *
                                 static_cast<double>(RowBytes(header.vocabulary)));
  if (static_cast<double>(file_bytes) != wanted) {
    const bool truncated = static_cast<double>(file_bytes) < wanted;
    return Error{path + (truncated ? ": truncated: " : ": not of the length its header says: ") +
                 std::to_string(file_bytes) + " bytes, expected " +
                 std::to_string(static_cast<int64_t>(std::min(wanted, 9e18)))};
  }
  header.tokens.resize(static_cast<size_t>(header.window * header.n_windows));
  reader.file_.read(reinterpret_cast<char*>(header.tokens.data()),
                    static_cast<std::streamsize>(header.tokens.size() * sizeof(int32_t)));
  if (!reader.file_) return Error{path + ": cannot be read"};
  for (size_t i = 0; i < header.tokens.size(); ++i) {
    if (header.tokens[i] >= 0 && header.tokens[i] < header.vocabulary) continue;
    return Error{path + ": token " + std::to_string(i) + " is " + std::to_string(header.tokens[i]) +
                 ", expected 0 to " + std::to_string(header.vocabulary - 1) +
                 ": the file is damaged"};
  }
  reader.row_.resize(RowBytes(header.vocabulary));
  return reader;
}

Result<void> LogProbsReader::Read(std::span<float> log_probs) {
  WINNOW_CHECK(static_cast<int64_t>(log_probs.size()) == header_.vocabulary);
  file_.read(row_.data(), static_cast<std::streamsize>(row_.size()));
  if (!file_) return Error{path_ + ": the file ends too soon"};
  float range[2];
  std::memcpy(range, row_.data(), sizeof(range));
  ++n_read_;
  // The largest log-probability of a row is at most 0, apart from rounding.
  const float largest = range[0] * kSteps + range[1];
  if (!(range[0] >= 0 && std::isfinite(range[1]) && largest <= kRoundingLeft)) {
    return Error{path_ + ": row " + std::to_string(n_read_) +
                 " holds no log-probabilities: steps of " + std::to_string(range[0]) + " from " +
                 std::to_string(range[1]) + ": the file is damaged"};
  }
  const char* in = row_.data() + sizeof(range);
  for (float& log_prob : log_probs) {
    uint16_t step = 0;
    std::memcpy(&step, in, sizeof(step));
    in += sizeof(step);
    log_prob = range[0] * step + range[1];
  }
  return {};
}

}  // namespace winnow::eval

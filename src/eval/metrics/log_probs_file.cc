#include "eval/metrics/log_probs_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "eval/metrics/statistics.h"

namespace winnow::eval {
namespace {

constexpr char kMagic[] = "_logits_";
constexpr size_t kMagicBytes = 8;
constexpr float kRange = 16;  // nats below the largest that are told apart
constexpr float kSteps = 65535;
constexpr int64_t kMostTokens = int64_t{1} << 40;  // of a header that can be believed

size_t RowBytes(int64_t vocabulary) {
  return 2 * sizeof(float) + sizeof(uint16_t) * static_cast<size_t>((vocabulary + 1) / 2 * 2);
}

}  // namespace

Result<LogProbsWriter> LogProbsWriter::Create(const std::string& path,
                                              const LogProbsHeader& header) {
  WINNOW_CHECK(static_cast<int64_t>(header.tokens.size()) == header.n_windows * header.window);
  LogProbsWriter writer;
  writer.path_ = path;
  writer.row_.resize(RowBytes(header.vocabulary));
  writer.file_.open(path, std::ios::binary | std::ios::trunc);
  const int32_t numbers[] = {static_cast<int32_t>(header.window),
                             static_cast<int32_t>(header.vocabulary),
                             static_cast<int32_t>(header.n_windows)};
  writer.file_.write(kMagic, kMagicBytes);
  writer.file_.write(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  writer.file_.write(reinterpret_cast<const char*>(header.tokens.data()),
                     static_cast<std::streamsize>(header.tokens.size() * sizeof(int32_t)));
  if (!writer.file_) return Error{path + ": cannot be written"};
  return writer;
}

Result<void> LogProbsWriter::Write(std::span<const float> logits) {
  WINNOW_CHECK(RowBytes(static_cast<int64_t>(logits.size())) == row_.size());
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  const float least = std::max(*low, *high - kRange);
  const float range[] = {(*high - least) / kSteps,
                         static_cast<float>(least - LogSumExp(logits))};  // scale, lowest
  char* out = row_.data();
  std::memcpy(out, range, sizeof(range));
  out += sizeof(range);
  for (const float logit : logits) {
    const float step = range[0] > 0 ? std::nearbyint((logit - least) / range[0]) : 0;
    const uint16_t stored = static_cast<uint16_t>(std::clamp(step, 0.0f, kSteps));
    std::memcpy(out, &stored, sizeof(stored));
    out += sizeof(stored);
  }
  file_.write(row_.data(), static_cast<std::streamsize>(row_.size()));
  if (!file_) return Error{path_ + ": writing failed (disk full?)"};
  return {};
}

Result<void> LogProbsWriter::Finish() {
  file_.close();
  if (!file_) return Error{path_ + ": writing failed (disk full?)"};
  return {};
}

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
  if (header.window < 1 || header.vocabulary < 1 || header.n_windows < 1 ||
      header.window * header.n_windows > kMostTokens) {
    return Error{path + ": impossible sizes: " + std::to_string(header.n_windows) + " windows of " +
                 std::to_string(header.window) + " tokens, vocabulary " +
                 std::to_string(header.vocabulary)};
  }
  const double wanted = sizeof(magic) + sizeof(numbers) +
                        static_cast<double>(header.n_windows) *
                            (4.0 * static_cast<double>(header.window) +
                             static_cast<double>(header.rows_per_window()) *
                                 static_cast<double>(RowBytes(header.vocabulary)));
  if (static_cast<double>(file_bytes) < wanted) {
    return Error{path + ": truncated: " + std::to_string(file_bytes) + " bytes, expected " +
                 std::to_string(static_cast<int64_t>(wanted))};
  }
  header.tokens.resize(static_cast<size_t>(header.window * header.n_windows));
  reader.file_.read(reinterpret_cast<char*>(header.tokens.data()),
                    static_cast<std::streamsize>(header.tokens.size() * sizeof(int32_t)));
  reader.row_.resize(RowBytes(header.vocabulary));
  return reader;
}

Result<void> LogProbsReader::Read(std::span<float> log_probs) {
  WINNOW_CHECK(static_cast<int64_t>(log_probs.size()) == header_.vocabulary);
  file_.read(row_.data(), static_cast<std::streamsize>(row_.size()));
  if (!file_) return Error{path_ + ": the file ends too soon"};
  float range[2];
  std::memcpy(range, row_.data(), sizeof(range));
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

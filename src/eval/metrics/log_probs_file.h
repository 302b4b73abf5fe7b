#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

// Log-probabilities of a reference run, in the file format of llama-perplexity
// (--kl-divergence-base), so that either program can compare with a run of the other:
//
//   "_logits_", u32 window, i32 vocabulary, i32 n_windows, i32 tokens [n_windows * window] before
//   BOS replaces any, then for every scored row of every window: f32 scale, f32 lowest, u16 steps
//   [vocabulary, padded to an even number]: log p = lowest + scale * step. Probabilities below
//   e^-16 of the largest share step 0.
namespace winnow::eval {

struct LogProbsHeader {
  int64_t window = 0;
  int64_t vocabulary = 0;
  int64_t n_windows = 0;
  std::vector<tokenizer::TokenId> tokens;  // [n_windows * window]

  int64_t rows_per_window() const { return window - 1 - window / 2; }
};

class LogProbsWriter {
 public:
  // Errors: the file cannot be written.
  static Result<LogProbsWriter> Create(const std::string& path, const LogProbsHeader& header);
  // One row. Errors: logits that are NaN or infinite, which the format cannot hold; the disk.
  Result<void> Write(std::span<const float> logits);
  // Commits the file; until then nothing changes at its path. Errors: the disk.
  Result<void> Finish();

 private:
  explicit LogProbsWriter(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  std::string row_;
};

class LogProbsReader {
 public:
  // Errors: cannot be read, not such a file, impossible sizes, not of the length its header says, a
  // token outside the vocabulary.
  static Result<LogProbsReader> Open(const std::string& path);
  const LogProbsHeader& header() const { return header_; }
  // The next row's log-probabilities, [vocabulary]. Errors: the file ends too soon, a row that does
  // not hold log-probabilities.
  Result<void> Read(std::span<float> log_probs);

 private:
  std::string path_;
  std::ifstream file_;
  LogProbsHeader header_;
  int64_t n_read_ = 0;  // rows
  std::vector<char> row_;
};

}  // namespace winnow::eval

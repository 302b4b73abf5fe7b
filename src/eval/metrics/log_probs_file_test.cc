#include "eval/metrics/log_probs_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

namespace winnow::eval {
namespace {

class LogProbsFile : public testing::Test {
 protected:
  ~LogProbsFile() override { std::filesystem::remove(path_); }
  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void WriteOneWindow(const std::vector<float>& logits) {
    LogProbsHeader header;
    header.window = 4;
    header.vocabulary = static_cast<int64_t>(logits.size());
    header.n_windows = 1;
    header.tokens = {0, 1, 2, 1};
    auto writer = LogProbsWriter::Create(path_, header);
    ASSERT_TRUE(writer.has_value());
    ASSERT_EQ(header.rows_per_window(), 1);
    ASSERT_TRUE(writer->Write(logits).has_value());
    ASSERT_TRUE(writer->Finish().has_value());
  }

  std::string path_ = testing::TempDir() + "log_probs_file_test_" + std::to_string(getpid());
};

TEST_F(LogProbsFile, LaysOutBytesAsLlamaCpp) {
  WriteOneWindow({0, 0, -8});
  const std::string bytes = Bytes();
  // Magic, three numbers, four tokens, scale and lowest, three steps and one of padding.
  ASSERT_EQ(bytes.size(), 8u + 12 + 16 + 8 + 8);
  EXPECT_EQ(bytes.substr(0, 8), "_logits_");
  int32_t numbers[7];
  std::memcpy(numbers, bytes.data() + 8, sizeof(numbers));
  EXPECT_EQ(std::vector<int32_t>(numbers, numbers + 7),
            (std::vector<int32_t>{4, 3, 1, 0, 1, 2, 1}));
  float range[2];
  std::memcpy(range, bytes.data() + 36, sizeof(range));
  EXPECT_FLOAT_EQ(range[0], 8.0f / 65535);
  EXPECT_FLOAT_EQ(range[1], static_cast<float>(-8 - std::log(2 + std::exp(-8.0))));
  uint16_t steps[3];
  std::memcpy(steps, bytes.data() + 44, sizeof(steps));
  EXPECT_EQ(std::vector<uint16_t>(steps, steps + 3), (std::vector<uint16_t>{65535, 65535, 0}));
}

TEST_F(LogProbsFile, ReadsBackWithinAStep) {
  const std::vector<float> logits = {1.5f, -2.25f, 0.125f, -30, 3};
  WriteOneWindow(logits);
  auto reader = LogProbsReader::Open(path_);
  ASSERT_TRUE(reader.has_value()) << reader.error().message;
  EXPECT_EQ(reader->header().tokens, (std::vector<int32_t>{0, 1, 2, 1}));
  std::vector<float> log_probs(5);
  ASSERT_TRUE(reader->Read(log_probs).has_value());
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (const size_t token : {0, 1, 2, 4}) {
    EXPECT_NEAR(log_probs[token], logits[token] - std::log(total), 16.0 / 65535) << token;
  }
  EXPECT_NEAR(log_probs[3], 3 - 16 - std::log(total), 1e-4);  // clamped
  EXPECT_FALSE(reader->Read(log_probs).has_value());
}

TEST_F(LogProbsFile, EqualLogitsHaveNoScale) {
  WriteOneWindow({2, 2, 2});
  auto reader = LogProbsReader::Open(path_);
  std::vector<float> log_probs(3);
  ASSERT_TRUE(reader->Read(log_probs).has_value());
  EXPECT_NEAR(log_probs[0], -std::log(3.0), 1e-6);
}

TEST_F(LogProbsFile, RefusesWhatItIsNot) {
  EXPECT_FALSE(LogProbsReader::Open("/nowhere/base").has_value());
  const auto refuses = [&](const std::string& bytes, const std::string& reason) {
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto reader = LogProbsReader::Open(path_);
    ASSERT_FALSE(reader.has_value());
    EXPECT_NE(reader.error().message.find(reason), std::string::npos) << reader.error().message;
  };
  refuses("", "not a file of log-probabilities");
  refuses("GGUF and something that is long enough", "not a file of log-probabilities");
  WriteOneWindow({1, 2, 3});
  const std::string bytes = Bytes();
  refuses(bytes.substr(0, bytes.size() - 1), "truncated");
  std::string huge = bytes;
  std::memset(huge.data() + 8, 0x7F, 12);
  refuses(huge, "impossible sizes");
  refuses(bytes + "more", "not of the length");
  // The tokens begin at byte 20: the second is one beyond the vocabulary of 3, then negative.
  for (const int32_t token : {3, 1 << 30, -1}) {
    std::string stray = bytes;
    std::memcpy(stray.data() + 24, &token, sizeof(token));
    refuses(stray, "token 1 is " + std::to_string(token) + ", expected 0 to 2");
  }
  std::string negative = bytes;
  std::memset(negative.data() + 8, 0xFF, 4);
  refuses(negative, "impossible sizes");
  // Windows of two tokens have no scored row, so that any vocabulary would fit into the file.
  std::string without_rows = bytes;
  without_rows[8] = 2;
  std::memset(without_rows.data() + 12, 0x7F, 4);
  refuses(without_rows, "impossible sizes");
  // More bytes than an int64_t can count.
  std::string endless = bytes;
  std::memset(endless.data() + 8, 0x7F, 2);
  std::memset(endless.data() + 12, 0x7F, 4);
  std::memset(endless.data() + 16, 0x7F, 3);
  refuses(endless, "truncated");
}

TEST_F(LogProbsFile, RefusesRowsThatHoldNoLogProbabilities) {
  WriteOneWindow({1, 2, 3});
  const std::string bytes = Bytes();
  const float nan = std::nanf("");
  for (const auto& [scale, lowest] : std::vector<std::pair<float, float>>{
           {nan, -1}, {1e-4f, nan}, {-1e-4f, -1}, {HUGE_VALF, -1}, {1e-4f, -HUGE_VALF}, {1, -1}}) {
    std::string damaged = bytes;
    std::memcpy(damaged.data() + 36, &scale, sizeof(scale));
    std::memcpy(damaged.data() + 40, &lowest, sizeof(lowest));
    std::ofstream(path_, std::ios::binary) << damaged;
    auto reader = LogProbsReader::Open(path_);
    ASSERT_TRUE(reader) << reader.error().message;
    std::vector<float> log_probs(3);
    const auto read = reader->Read(log_probs);
    ASSERT_FALSE(read) << scale << " " << lowest;
    EXPECT_NE(read.error().message.find("row 1 holds no log-probabilities"), std::string::npos);
  }
}

TEST_F(LogProbsFile, LogitsThatAreNotFiniteAreNotWritten) {
  LogProbsHeader header = {.window = 4, .vocabulary = 2, .n_windows = 1, .tokens = {0, 1, 0, 1}};
  auto writer = LogProbsWriter::Create(path_, header);
  ASSERT_TRUE(writer);
  EXPECT_FALSE(writer->Write(std::vector<float>{1, std::nanf("")}));
  EXPECT_FALSE(writer->Write(std::vector<float>{1, -HUGE_VALF}));
  EXPECT_TRUE(writer->Write(std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace winnow::eval

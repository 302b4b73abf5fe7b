#include "report/safetensors_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "report/safetensors.h"

namespace winnow::report {
namespace {

class SafetensorsReaderTest : public testing::Test {
 protected:
  const std::string path_ = testing::TempDir() + "safetensors_reader_" + std::to_string(getpid());

  void TearDown() override { unlink(path_.c_str()); }

  // Writes a file with this header, whose length field says `claimed_bytes`, and `data_bytes`
  // zeros.
  void Make(const std::string& header, size_t data_bytes, uint64_t claimed_bytes) {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&claimed_bytes), sizeof(claimed_bytes));
    file << header << std::string(data_bytes, '\0');
  }
  std::string ErrorText(const std::string& header, size_t data_bytes = 8) {
    Make(header, data_bytes, header.size());
    const auto reader = SafetensorsReader::Open(path_);
    if (reader) return "no error";
    EXPECT_TRUE(reader.error().message.starts_with(path_ + ": "));
    return reader.error().message.substr(path_.size() + 2);
  }
};

TEST_F(SafetensorsReaderTest, ReadsWhatTheWriterWrites) {
  using Type = SafetensorsWriter::Type;
  auto writer = SafetensorsWriter::Create(
      path_, {{"b", Type::kI32, {2}}, {"a", Type::kF32, {2, 3}}}, {{"by", "winnow"}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->Write(std::vector<int32_t>{7, -8}));
  ASSERT_TRUE(writer->Write(std::vector<float>{1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(writer->Finish());

  auto reader = SafetensorsReader::Open(path_);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->metadata().at("by"), "winnow");
  ASSERT_EQ(reader->tensors().size(), 2u);
  const auto* a = reader->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(reader->Find("c"), nullptr);
  std::vector<float> floats(2);
  ASSERT_TRUE(reader->Read(*a, 3, floats));
  EXPECT_EQ(floats, (std::vector<float>{4, 5}));
  std::vector<int32_t> integers(2);
  ASSERT_TRUE(reader->Read(*reader->Find("b"), 0, integers));
  EXPECT_EQ(integers, (std::vector<int32_t>{7, -8}));
  const auto wrong = reader->Read(*a, 0, integers);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, path_ + ": a: element type F32, expected I32");
}

TEST_F(SafetensorsReaderTest, RefusesOtherFiles) {
  EXPECT_FALSE(SafetensorsReader::Open(path_));  // does not exist
  std::ofstream(path_) << "short";
  EXPECT_FALSE(SafetensorsReader::Open(path_));
  Make("{}", 0, uint64_t{1} << 63);
  EXPECT_FALSE(SafetensorsReader::Open(path_));
  Make("{}", 0, 3);
  EXPECT_FALSE(SafetensorsReader::Open(path_));
  EXPECT_EQ(ErrorText("[]"), "its header is not a JSON object");
  EXPECT_EQ(ErrorText("{\"a\":"), "its header is not a JSON object");
  EXPECT_EQ(ErrorText(std::string(1 << 20, '[')), "its header is not a JSON object");
  EXPECT_EQ(ErrorText("{}"), "no error");
}

TEST_F(SafetensorsReaderTest, RefusesContradictions) {
  const auto entry = [](const char* type, const char* shape, const char* offsets) {
    return std::string("{\"t\":{\"dtype\":") + type + ",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  EXPECT_EQ(ErrorText(entry("\"F32\"", "[2]", "[0,8]")), "no error");
  EXPECT_EQ(ErrorText(entry("\"F32\"", "[]", "[0,4]")), "no error");  // a scalar
  EXPECT_EQ(ErrorText(entry("\"Q9\"", "[2]", "[0,1]")), "no error");  // unknown, not asked for
  EXPECT_EQ(ErrorText("{\"t\":3}"), "t: its entry is not an object");
  EXPECT_EQ(ErrorText(entry("3", "[2]", "[0,8]")), "t: it has no dtype");
  for (const char* shape : {"[-1]", "[2.5]", "\"2\"", "[[2]]", "[18446744073709551615]"}) {
    EXPECT_EQ(ErrorText(entry("\"F32\"", shape, "[0,8]")), "t: it has no shape of whole numbers");
  }
  EXPECT_EQ(ErrorText(entry("\"F32\"", "[2]", "[0]")), "t: it has no pair of data_offsets");
  EXPECT_EQ(ErrorText(entry("\"F32\"", "[2]", "[8,0]")),
            "t: its data lies at 8..0, the file has 8 bytes of data");
  EXPECT_EQ(ErrorText(entry("\"F32\"", "[3]", "[0,12]")),
            "t: its data lies at 0..12, the file has 8 bytes of data");
  for (const char* shape :
       {"[3]", "[4611686018427387904,4]", "[4294967296,4294967296,4294967296]"}) {
    EXPECT_EQ(ErrorText(entry("\"F32\"", shape, "[0,8]")),
              "t: its shape does not fit its 8 bytes of data");
  }
  EXPECT_EQ(ErrorText("{\"__metadata__\":{\"n\":3}}"), "metadata n: expected a string");
  EXPECT_EQ(ErrorText("{\"__metadata__\":[]}"), "its metadata is not a JSON object");
}

}  // namespace
}  // namespace winnow::report

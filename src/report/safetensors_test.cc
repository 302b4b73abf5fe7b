#include "report/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace winnow::report {
namespace {

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Safetensors, LaysOutHeaderAndData) {
  const std::string path = testing::TempDir() + "safetensors_test_" + std::to_string(getpid());
  auto writer = SafetensorsWriter::Create(path,
                                          {{"tokens", SafetensorsWriter::Type::kI32, {2}},
                                           {"logits", SafetensorsWriter::Type::kF32, {2, 3}}},
                                          {{"by", "winnow"}});
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  ASSERT_TRUE(writer->Write(std::vector<int32_t>{7, 8}).has_value());
  ASSERT_TRUE(writer->Write(std::vector<float>{1, 2, 3}).has_value());
  ASSERT_TRUE(writer->Write(std::vector<float>{4, 5, 6}).has_value());
  ASSERT_TRUE(writer->Finish().has_value());

  const std::string bytes = Bytes(path);
  uint64_t n_header = 0;
  std::memcpy(&n_header, bytes.data(), 8);
  EXPECT_EQ(n_header % 8, 0u);
  std::string header = bytes.substr(8, n_header);
  header.erase(header.find_last_not_of(' ') + 1);
  EXPECT_EQ(header, R"({"__metadata__":{"by":"winnow"},)"
                    R"("tokens":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},)"
                    R"("logits":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}})");
  ASSERT_EQ(bytes.size(), 8 + n_header + 32);
  int32_t token = 0;
  std::memcpy(&token, bytes.data() + 8 + n_header + 4, 4);
  EXPECT_EQ(token, 8);
  float logit = 0;
  std::memcpy(&logit, bytes.data() + bytes.size() - 4, 4);
  EXPECT_EQ(logit, 6);
  std::filesystem::remove(path);
}

TEST(Safetensors, NamesTheFileItCannotWrite) {
  const auto writer = SafetensorsWriter::Create("/nowhere/x.safetensors", {});
  ASSERT_FALSE(writer.has_value());
  EXPECT_EQ(writer.error().message,
            "/nowhere/x.safetensors: cannot be written: No such file or directory");
}

}  // namespace
}  // namespace winnow::report

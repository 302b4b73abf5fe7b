#include "gguf/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "gguf/testing/builder.h"
#include "gguf/testing/colliding_strings.h"
#include "gtest/gtest.h"

namespace winnow::gguf {
namespace {

using testing::Builder;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("winnow_file_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  static std::string OpenError(const std::string& path) {
    const auto file = File::Open(path);
    return file ? "accepted" : file.error().message;
  }

  // Part `number` (from 0) of `count`, with one tensor.
  static Builder Part(uint32_t number, uint32_t count) {
    Builder builder;
    builder.Uint32("split.no", number).Uint32("split.count", count).Int32("split.tensors.count", 3);
    if (number == 0) builder.String("general.architecture", "llama");
    builder.TensorF32("t" + std::to_string(number), {2}, {static_cast<float>(number), 0});
    return builder;
  }

  std::filesystem::path folder_;
};

TEST_F(FileTest, BytesOfTheProgramStayWhereTheyAre) {
  Builder builder;
  builder.String("s", "text");
  const std::vector<std::byte> bytes = builder.Bytes();
  const auto file = File::View(bytes, "bundled").value();
  EXPECT_EQ(file->path(), "bundled");
  EXPECT_EQ(file->contents().front().data(), bytes.data());
  EXPECT_EQ(file->file_bytes(), static_cast<int64_t>(bytes.size()));
  const std::string_view text = file->String("s").value().value();
  EXPECT_TRUE(std::as_bytes(std::span(text)).data() > bytes.data());
  EXPECT_EQ(File::View(std::span(bytes).first(10), "short").error().message.substr(0, 6), "gguf: ");
}

// Regression: keys and names were found by std::hash, so opening such a file took quadratic time.
TEST_F(FileTest, KeysAndNamesMadeToCollideTakeNoLonger) {
  const auto seconds = [](const std::vector<std::string>& strings) {
    Builder builder;
    for (const std::string& text : strings) builder.Bool(text, true).TensorF32(text, {1}, {1});
    const std::vector<std::byte> bytes = builder.Bytes();
    return testing::ProcessorSeconds([&] { ASSERT_TRUE(File::Parse(bytes).has_value()); });
  };
  constexpr size_t kStrings = 10000;
  EXPECT_LT(seconds(testing::CollidingStrings(kStrings)),
            10 * seconds(testing::OrdinaryStrings(kStrings)) + 0.05);
}

TEST_F(FileTest, TypedAccess) {
  Builder builder;
  builder.Uint32("u32", 7)
      .Int32("negative", -7)
      .Uint64("huge", UINT64_MAX)
      .Float32("f", 0.5f)
      .Bool("b", true);
  builder.String("s", "text").Strings("ss", {"a"}).Int32s("is", {-1, 1}).Float32s("fs", {0.25f});
  const auto file = File::Parse(builder.Bytes()).value();
  EXPECT_EQ(file->Uint("u32").value(), 7u);
  EXPECT_EQ(file->Int("u32").value(), 7);
  EXPECT_EQ(file->Int("negative").value(), -7);
  EXPECT_EQ(file->Uint("negative").error().message, "gguf: negative: -7 (0 or more expected)");
  EXPECT_EQ(file->Int("huge").error().message,
            "gguf: huge: 18446744073709551615 (less than 2^63 expected)");
  EXPECT_EQ(file->Float("f").value(), 0.5);
  EXPECT_EQ(file->Float("u32").value(), 7.0);
  EXPECT_EQ(file->Bool("b").value(), true);
  EXPECT_EQ(file->String("s").value(), "text");
  EXPECT_EQ(file->Strings("ss").value().value().size(), 1u);
  EXPECT_EQ(file->Ints("is").value().value(), (std::vector<int64_t>{-1, 1}));
  EXPECT_EQ(file->Floats("fs").value().value(), (std::vector<float>{0.25f}));

  EXPECT_EQ(file->Uint("absent").value(), std::nullopt);
  EXPECT_EQ(file->Strings("absent").value(), std::nullopt);
  EXPECT_EQ(file->Uint("s").error().message, "gguf: s: type string (integer expected)");
  EXPECT_EQ(file->String("u32").error().message, "gguf: u32: type u32 (string expected)");
  EXPECT_EQ(file->Floats("is").error().message,
            "gguf: is: type array of i32 (array of floats expected)");
  EXPECT_EQ(file->Find("absent"), nullptr);
  EXPECT_EQ(file->FindTensor("absent"), nullptr);
}

TEST_F(FileTest, ErrorsNameTheFile) {
  EXPECT_EQ(OpenError(Path("none.gguf")),
            "gguf: " + Path("none.gguf") + ": cannot open: No such file or directory");
  EXPECT_EQ(OpenError(folder_.string()),
            "gguf: " + folder_.string() + ": is a directory, a .gguf file expected");
  Builder builder;
  builder.TensorF32("x", {4}, {1, 2, 3, 4}).truncate_bytes = 20;
  builder.Write(Path("short.gguf"));
  EXPECT_EQ(
      OpenError(Path("short.gguf")).rfind("gguf: " + Path("short.gguf") + ": file is trunc", 0), 0u)
      << OpenError(Path("short.gguf"));
  std::ofstream(Path("empty.gguf")).close();
  EXPECT_EQ(OpenError(Path("empty.gguf")), "gguf: " + Path("empty.gguf") + ": is empty");
  ASSERT_EQ(mkfifo(Path("pipe.gguf").c_str(), 0600), 0);
  EXPECT_EQ(OpenError(Path("pipe.gguf")), "gguf: " + Path("pipe.gguf") + ": is not a regular file");
}

TEST_F(FileTest, OpensSplitModels) {
  for (uint32_t number = 0; number < 3; ++number) {
    Part(number, 3).Write(Path("m-0000" + std::to_string(number + 1) + "-of-00003.gguf"));
  }
  const auto file = File::Open(Path("m-00001-of-00003.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->tensors().size(), 3u);
  for (uint32_t number = 0; number < 3; ++number) {
    const Tensor* tensor = (*file)->FindTensor("t" + std::to_string(number));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(*reinterpret_cast<const float*>(tensor->bytes.data()), static_cast<float>(number));
  }
  EXPECT_EQ((*file)->String("general.architecture").value(), "llama");
  EXPECT_NE(
      OpenError(Path("m-00002-of-00003.gguf"))
          .find("part 2 of 3: give the path of the first part, " + Path("m-00001-of-00003.gguf")),
      std::string::npos);
}

TEST_F(FileTest, RefusesBrokenSplits) {
  const std::string first = Path("m-00001-of-00003.gguf");
  Part(0, 3).Write(first);
  EXPECT_NE(OpenError(first).find("m-00002-of-00003.gguf: cannot open"), std::string::npos)
      << OpenError(first);
  Part(1, 3).Write(Path("m-00002-of-00003.gguf"));
  Part(1, 3).Write(Path("m-00003-of-00003.gguf"));
  EXPECT_NE(OpenError(first).find("split.no is 1 (2 expected)"), std::string::npos)
      << OpenError(first);
  Part(2, 3).RemoveTensor("t2").TensorF32("t0", {1}, {0}).Write(Path("m-00003-of-00003.gguf"));
  EXPECT_NE(OpenError(first).find("t0: tensor appears in two parts"), std::string::npos)
      << OpenError(first);
  Part(2, 3).TensorF32("t9", {1}, {0}).Write(Path("m-00003-of-00003.gguf"));
  EXPECT_NE(OpenError(first).find("split.tensors.count is 3 (4 expected)"), std::string::npos)
      << OpenError(first);
  Part(0, 3).Write(Path("renamed.gguf"));
  EXPECT_NE(
      OpenError(Path("renamed.gguf")).find("not named like it (NAME-00001-of-00003.gguf expected)"),
      std::string::npos);
  Part(5, 3).Write(first);
  EXPECT_NE(OpenError(first).find("split.no is 5 (less than 3 expected)"), std::string::npos)
      << OpenError(first);
}

TEST_F(FileTest, OpensRealVocabulariesAndModels) {
  const std::filesystem::path data = "../shared/data";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "skipped: ../shared/data is not here";
  const std::vector<std::pair<std::string, size_t>> vocabularies = {
      {"falcon", 65024},    {"gpt-2", 50257}, {"llama-bpe", 128256},
      {"llama-spm", 32000}, {"phi-3", 32064}, {"qwen2", 151936}};
  for (const auto& [name, n_tokens] : vocabularies) {
    const auto file = File::Open((data / "tokenizers" / ("ggml-vocab-" + name + ".gguf")).string());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->Strings("tokenizer.ggml.tokens").value().value().size(), n_tokens) << name;
    EXPECT_TRUE((*file)->tensors().empty());
  }
  const auto model = File::Open((data / "models/stories260K/stories260K-f32.gguf").string());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->tensors().size(), 47u);
  EXPECT_EQ((*model)->Uint("llama.embedding_length").value(), 64u);
}

}  // namespace
}  // namespace winnow::gguf

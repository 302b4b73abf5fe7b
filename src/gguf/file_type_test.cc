#include "gguf/file_type.h"

#include <gtest/gtest.h>

#include "gguf/testing/builder.h"

namespace winnow::gguf {
namespace {

std::string_view Label(const testing::Builder& builder) {
  return FileTypeName(**File::Parse(builder.Bytes()));
}

TEST(FileType, NamesTheMix) {
  EXPECT_EQ(Label(testing::Builder().Uint32("general.file_type", 15)), "Q4_K_M");
  EXPECT_EQ(Label(testing::Builder().Uint32("general.file_type", 32)), "BF16");
}

TEST(FileType, IsEmptyWithoutALabel) {
  EXPECT_EQ(Label(testing::Builder()), "");
  EXPECT_EQ(Label(testing::Builder().Uint32("general.file_type", 999)), "");
  EXPECT_EQ(Label(testing::Builder().String("general.file_type", "Q4_0")), "");
}

}  // namespace
}  // namespace winnow::gguf

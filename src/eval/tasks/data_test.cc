#include "eval/tasks/data.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace winnow::eval {
namespace {

class Data : public testing::Test {
 protected:
  Data() {
    std::string name = testing::TempDir() + "winnow-data-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Data() override { std::filesystem::remove_all(folder_); }
  std::string File(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string folder_;
};

TEST_F(Data, JsonLines) {
  const auto rows =
      ReadJsonLines(File("a.jsonl", "{\"x\":\"1\",\"y\":[\"p\",\"q\"]}\n\n{\"x\":2}"));
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(*(*rows)[0].Text("x"), "1");
  EXPECT_EQ((*rows)[0].Texts("y")->size(), 2u);
  EXPECT_EQ(*(*rows)[1].Number("x"), 2);
  EXPECT_EQ((*rows)[1].TextOrEmpty("x"), "2");
  EXPECT_EQ((*rows)[1].where(), "a.jsonl:3");
}

TEST_F(Data, ErrorsSayFileLineFoundAndExpected) {
  const auto rows = ReadJsonLines(File("a.jsonl", "{\"x\":1}\n"));
  const auto text = (*rows)[0].Text("x");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "a.jsonl:1: field 'x': found a whole number, expected a text");
  EXPECT_EQ((*rows)[0].Texts("z").error().message,
            "a.jsonl:1: field 'z' is missing, expected a list of texts");
  const auto broken = ReadJsonLines(File("b.jsonl", "{}\n{\"x\":\n"));
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("b.jsonl:2"), std::string::npos);
  EXPECT_FALSE(ReadJsonLines(folder_ + "/none.jsonl"));
  EXPECT_FALSE(ReadJsonLines(folder_));
}

TEST_F(Data, Csv) {
  const std::string text =
      "\xEF\xBB\xBFname,\"a \"\"quoted\"\" word\"\r\n\"two\nlines\",x\r\n,last";
  const auto rows = ReadCsv(File("a.csv", text), true);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(*(*rows)[0].Text("name"), "two\nlines");
  EXPECT_EQ(*(*rows)[0].Text("a \"quoted\" word"), "x");
  EXPECT_EQ(*(*rows)[1].Text("name"), "");
  const auto bare = ReadCsv(File("b.csv", "1,2\n3,4\n"), false);
  EXPECT_EQ(*(*bare)[1].Text("0"), "3");
  EXPECT_FALSE(ReadCsv(File("c.csv", "a,b\n1\n"), true));
  EXPECT_FALSE(ReadCsv(File("d.csv", "\"a,b\n1\n"), true));
}

TEST_F(Data, JsonLists) {
  EXPECT_EQ(ReadJsonList(File("a.json", "[{},{}]"))->size(), 2u);
  EXPECT_EQ(ReadJsonList(File("b.json", "{\"data\":[{}]}"), "data")->size(), 1u);
  EXPECT_FALSE(ReadJsonList(File("c.json", "{\"data\":[{}]}"), "samples"));
  EXPECT_FALSE(ReadJsonList(File("d.json", "[1]")));
  EXPECT_FALSE(ReadJsonList(File("e.json", "3")));
}

TEST_F(Data, FilesOfADirectory) {
  const std::string b = File("b.txt", "");
  const std::string a = File("a.txt", "");
  File("c.md", "");
  EXPECT_EQ(*ListFiles(folder_, ".txt"), (std::vector<std::string>{a, b}));
  EXPECT_EQ(*ListFiles(b, ".txt"), std::vector<std::string>{b});
  EXPECT_FALSE(ListFiles(folder_ + "/none", ".txt"));
  EXPECT_EQ(FindIn(folder_, {"x", "c.md"}), folder_ + "/c.md");
  EXPECT_EQ(FindIn(folder_, {"x"}), std::nullopt);
}

}  // namespace
}  // namespace winnow::eval

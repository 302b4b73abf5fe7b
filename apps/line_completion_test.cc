#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "line_editor.h"

namespace winnow::apps {
namespace {

constexpr std::string_view kCommands[] = {"/read", "/regen", "/save"};
constexpr std::string_view kTakeFile[] = {"/read"};
const LineEditor::Options kOptions = {.history = {}, .commands = kCommands, .take_file = kTakeFile};

using Words = std::vector<std::string>;

TEST(Completion, Commands) {
  EXPECT_EQ(FindCompletion("/re", kOptions).words, (Words{"/read", "/regen"}));
  EXPECT_EQ(FindCompletion("/re", kOptions).n_typed, 3U);
  EXPECT_EQ(FindCompletion("/s", kOptions).words, Words{"/save"});
  EXPECT_TRUE(FindCompletion("/x", kOptions).words.empty());
  EXPECT_TRUE(FindCompletion("", kOptions).words.empty());
  EXPECT_TRUE(FindCompletion("read", kOptions).words.empty());
}

TEST(Completion, FilesAfterCommandsThatTakeThem) {
  const std::string folder = testing::TempDir() + "winnow-completion-test/";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "notes");
  std::ofstream(folder + "note one.txt") << "x";
  std::ofstream(folder + ".hidden") << "x";
  EXPECT_EQ(FindCompletion("/read " + folder + "no", kOptions).words,
            (Words{folder + "note one.txt", folder + "notes/"}));
  EXPECT_EQ(FindCompletion("/read " + folder + "note ", kOptions).words,
            Words{folder + "note one.txt"});
  EXPECT_EQ(FindCompletion("/read " + folder, kOptions).words.size(), 2U);
  EXPECT_EQ(FindCompletion("/read " + folder + ".h", kOptions).words, Words{folder + ".hidden"});
  EXPECT_TRUE(FindCompletion("/save " + folder, kOptions).words.empty());
  EXPECT_TRUE(FindCompletion("/read /nowhere/at/all", kOptions).words.empty());
  std::filesystem::remove_all(folder);
}

TEST(Completion, CommonStartEndsBetweenCharacters) {
  EXPECT_EQ(CommonStart(Words{"/read", "/regen"}), "/re");
  EXPECT_EQ(CommonStart(Words{"one"}), "one");
  EXPECT_EQ(CommonStart(Words{"a\xC3\xA9", "a\xC3\xA8"}), "a");
}

}  // namespace
}  // namespace winnow::apps

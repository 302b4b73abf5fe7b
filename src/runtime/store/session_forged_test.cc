// Session files whose hashes are right and whose content lies.
#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/store/session_file.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

using testing::Tokens;

struct Section {
  std::string tag;
  std::string content;
};

class ForgedSessionTest : public ::testing::Test {
 protected:
  ForgedSessionTest()
      : engine_(testing::TinyEngine(model::testing::MakeTinySpec("llama"))),
        path_(::testing::TempDir() + "winnow-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".session") {
    std::filesystem::remove(path_);
  }
  ~ForgedSessionTest() override { std::filesystem::remove(path_); }

  static SessionOptions Options(const std::string& method, int64_t size, double ratio = 0) {
    SessionOptions options;
    options.compression.method = compression::MakeMethod(method).value();
    options.compression.size = size;
    options.compression.ratio = ratio;
    return options;
  }
  // Saves a session of 30 tokens, changes the content of sections, and returns why the file cannot
  // be restored.
  std::string Forge(const SessionOptions& options,
                    const std::function<void(std::vector<Section>&)>& change) {
    const auto session = Session::Make(*engine_, options).value();
    EXPECT_TRUE(session->Prefill(Tokens(30)).value());
    EXPECT_TRUE(SaveSession(*session, path_).has_value());
    std::ifstream in(path_, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    constexpr size_t kStart = 24, kHead = 24;  // the file's head, a section's head
    std::vector<Section> sections;
    for (size_t at = kStart; at < bytes.size();) {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data() + at + 8, sizeof size);
      sections.push_back({bytes.substr(at, 4), bytes.substr(at + kHead, size)});
      at += kHead + size;
    }
    change(sections);
    std::string forged = bytes.substr(0, kStart);
    const auto number = [&](uint64_t value) {
      forged.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    for (const Section& section : sections) {
      forged += section.tag + std::string(4, '\0');
      number(section.content.size());
      number(XXH3_64bits(section.content.data(), section.content.size()));
      forged += section.content;
    }
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << forged;
    const auto restored = RestoreSession(*engine_, options, path_);
    return restored ? "" : restored.error().message;
  }
  // INFO ends with the budget and three other numbers of 8 bytes.
  static void SetBudget(std::vector<Section>& sections, int64_t budget) {
    std::string& info = sections.at(0).content;
    ASSERT_EQ(sections[0].tag, "INFO");
    std::memcpy(info.data() + info.size() - 32, &budget, sizeof budget);
  }

  std::unique_ptr<Engine> engine_;
  std::string path_;
};

TEST_F(ForgedSessionTest, WhatIsNotChangedIsRestored) {
  EXPECT_EQ(Forge(Options("streaming", 16), [](auto&) {}), "");
  EXPECT_EQ(Forge(Options("h2o", 0, 0.5), [](auto& sections) { SetBudget(sections, 15); }), "");
}

// The table of rotations is made for layer 0; a layer that stores other keys would read beyond it.
TEST_F(ForgedSessionTest, LayersDoNotDisagreeOnRotation) {
  const std::string problem = Forge(Options("streaming", 16), [](std::vector<Section>& sections) {
    int n_layers = 0;
    for (Section& section : sections) {
      if (section.tag == "LAYR" && n_layers++ == 1) section.content[0] = 1;
    }
    ASSERT_GT(n_layers, 1);
  });
  EXPECT_NE(problem.find("keys of layer 1"), std::string::npos) << problem;
}

TEST_F(ForgedSessionTest, BudgetsAreWithinWhatMethodsTake) {
  const auto budget = [](int64_t n) {
    return [n](std::vector<Section>& sections) { SetBudget(sections, n); };
  };
  for (const auto& entry : compression::Methods()) {
    const std::string method(entry.name);
    const auto made = compression::MakeMethod(method).value();
    if (!made->traits().budget.needed || !made->traits().decisions.Evicts()) continue;
    for (const SessionOptions& options : {Options(method, 0, 0.9), Options(method, 25)}) {
      EXPECT_NE(Forge(options, budget(0)).find("its budget is 0 slots"), std::string::npos)
          << method;
    }
    EXPECT_NE(Forge(Options(method, 25), budget(26)).find("expected 25"), std::string::npos);
  }
}

TEST_F(ForgedSessionTest, AFifoIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const auto restored = RestoreSession(*engine_, Options("h2o", 16), path_);
  ASSERT_FALSE(restored);
  EXPECT_NE(restored.error().message.find("is not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace winnow::runtime

#include "runtime/session_store.h"

#include <unistd.h>

#include <filesystem>

#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

class SessionStoreTest : public ::testing::Test {
 protected:
  SessionStoreTest()
      : engine_(testing::TinyEngine(model::testing::MakeTinySpec("llama"))),
        path_(::testing::TempDir() + "winnow-session-store-" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    folder_ = SessionFolder::Open(path_).value();
    store_ = MakeStore();
  }
  ~SessionStoreTest() override { std::filesystem::remove_all(path_); }

  std::unique_ptr<SessionStore> MakeStore() {
    return std::make_unique<SessionStore>(*engine_, options_, folder_.get(), names_, log_);
  }
  void Put(const std::string& name) {
    IdleSession idle = {.name = name, .session = Session::Make(*engine_, {}).value()};
    ASSERT_TRUE(idle.session->Prefill(testing::Tokens(5)).value());
    store_->Put(std::move(idle));
  }
  void Save(SessionStore& store, const std::string& file, int n_tokens) {
    IdleSession idle = {.name = "s", .session = Session::Make(*engine_, {}).value()};
    ASSERT_TRUE(idle.session->Prefill(testing::Tokens(n_tokens)).value());
    ASSERT_TRUE(store.Save(idle, file, Durability::kWritten).has_value());
  }
  std::vector<int64_t> Lengths() {
    std::vector<int64_t> lengths;
    for (const SessionInfo& info : store_->List({})) lengths.push_back(info.n_tokens);
    return lengths;
  }

  std::unique_ptr<Engine> engine_;
  SchedulerOptions options_;
  SessionNames names_;
  NullLog log_;
  std::string path_;
  std::unique_ptr<SessionFolder> folder_;
  std::unique_ptr<SessionStore> store_;
};

TEST_F(SessionStoreTest, ReadsTheHeadOfAFileOnce) {
  for (int i = 1; i <= 5; ++i) Save(*store_, "file-" + std::to_string(i), i);
  std::filesystem::copy_file(path_ + "/file-1.session", path_ + "/damaged.session");
  std::filesystem::resize_file(path_ + "/damaged.session", 60);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Lengths(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
    EXPECT_TRUE(store_->ReadMaxBytes("file-3").has_value());
    EXPECT_FALSE(store_->ReadMaxBytes("damaged").has_value());
    EXPECT_EQ(store_->n_heads_read(), 6);
  }
}

// Also where another process wrote it.
TEST_F(SessionStoreTest, ReadsWhatHasChangedAgain) {
  Save(*store_, "a", 3);
  Save(*store_, "b", 4);
  EXPECT_EQ(Lengths(), (std::vector<int64_t>{3, 4}));
  Save(*store_, "a", 5);
  EXPECT_EQ(Lengths(), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(store_->n_heads_read(), 3);
  Save(*MakeStore(), "b", 6);
  EXPECT_EQ(Lengths(), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(store_->n_heads_read(), 4);
  ASSERT_TRUE(store_->RemoveFile("a").has_value());
  EXPECT_EQ(Lengths(), std::vector<int64_t>{6});
  EXPECT_FALSE(store_->ReadMaxBytes("a").has_value());
  Save(*store_, "a", 7);
  EXPECT_EQ(Lengths(), (std::vector<int64_t>{7, 6}));
  EXPECT_EQ(store_->n_heads_read(), 5);
}

// A removal among it: the file would be there again.
TEST_F(SessionStoreTest, ASessionWhoseFileIsWorkedOnIsNotEvicted) {
  Put("a");
  store_->BeginFileWork("a");
  store_->BeginFileWork("a");
  store_->BeginFileWork("b");
  store_->EndFileWork("a");
  EXPECT_EQ(store_->EvictableBytes(nullptr), 0);
  EXPECT_FALSE(store_->Evict(nullptr));
  EXPECT_FALSE(store_->HasFile("a"));
  store_->EndFileWork("a");
  EXPECT_EQ(store_->n_file_work(), 1);
  EXPECT_GT(store_->EvictableBytes(nullptr), 0);
  EXPECT_TRUE(store_->Evict(nullptr));
  EXPECT_TRUE(store_->HasFile("a"));
}

}  // namespace
}  // namespace winnow::runtime

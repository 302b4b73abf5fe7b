#include "runtime/store/session_store.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/testing/scheduler_run.h"
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
    return std::make_unique<SessionStore>(*engine_, options_, folder_.get(), names_, log_, clock_);
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
  using Kind = SessionStore::Eviction::Kind;
  // Evicts a session, including the write.
  Kind Evict() {
    const SessionStore::Eviction eviction = store_->Evict({});
    if (eviction.kind != Kind::kLeaves) return eviction.kind;
    EXPECT_GT(store_->evicting_bytes(), 0);
    const auto error = eviction.saving.write();
    store_->EndEvict(eviction.saving, error ? &*error : nullptr);
    EXPECT_EQ(store_->evicting_bytes(), 0);
    return eviction.kind;
  }
  std::vector<int64_t> Lengths() {
    SessionStore::FolderScan scan;
    EXPECT_TRUE(store_->Continue(scan)) << "the clock stands still";
    std::vector<int64_t> lengths;
    for (const SessionInfo& info : store_->List({})) lengths.push_back(info.n_tokens);
    return lengths;
  }

  std::unique_ptr<Engine> engine_;
  SchedulerOptions options_;
  SessionNames names_;
  NullLog log_;
  testing::FakeClock clock_;
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

// Each look at the clock takes 1 ms, which is the part of a gap of 20 ms.
TEST_F(SessionStoreTest, AFolderIsScannedInParts) {
  for (int i = 1; i <= 5; ++i) Save(*store_, "file-" + std::to_string(i), i);
  const testing::TickingClock clock;
  options_.max_token_gap_ms = 20;
  SessionStore store(*engine_, options_, folder_.get(), names_, log_, clock);
  Save(*store_, "file-6", 6);  // as another process does
  SessionStore::FolderScan scan;
  int n_parts = 1;
  for (; !store.Continue(scan); ++n_parts) {
    EXPECT_EQ(store.n_heads_read(), n_parts);
    if (n_parts == 3) {  // one that was looked at, and one that was not
      for (const char* gone : {"file-5", "file-1"}) {
        ASSERT_TRUE(folder_->Remove(gone).has_value());
        store.FileRemoved(gone);
      }
      Save(store, "file-7", 7);
    }
  }
  EXPECT_GE(n_parts, 5);
  std::vector<int64_t> lengths;
  for (const SessionInfo& info : store.List({})) lengths.push_back(info.n_tokens);
  EXPECT_EQ(lengths, (std::vector<int64_t>{2, 3, 4, 6, 7}));
}

// A killed process leaves them. Younger ones may be of a process that is saving now.
TEST_F(SessionStoreTest, OldTemporaryFilesOfSessionsAreRemoved) {
  const auto make = [&](const std::string& name, std::chrono::minutes age) {
    std::filesystem::path path = path_ + "/" + name;
    std::ofstream(path) << "part of a session";
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - age);
    return path;
  };
  using std::chrono::minutes;
  const auto old = make(".a.session.123-0.tmp", minutes(61));
  const auto other_old = make(".a.b-2.session.123-45.tmp", minutes(100'000));
  std::vector<std::filesystem::path> kept = {make(".a.session.123-1.tmp", minutes(59))};
  for (const char* other : {".a.json.123-0.tmp", ".a.session.tmp", "a.session.123-0.tmp",
                            ".a.session.123-0.tmp.bak", "..session.123-0.tmp", "b.session"}) {
    kept.push_back(make(other, minutes(100'000)));
  }
  store_ = MakeStore();
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_FALSE(std::filesystem::exists(other_old));
  for (const auto& path : kept) EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

// Also if another process wrote the file.
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
  std::filesystem::remove(path_ + "/a.session");
  store_->FileRemoved("a");
  EXPECT_EQ(Lengths(), std::vector<int64_t>{6});
  EXPECT_FALSE(store_->ReadMaxBytes("a").has_value());
  Save(*store_, "a", 7);
  EXPECT_EQ(Lengths(), (std::vector<int64_t>{7, 6}));
  EXPECT_EQ(store_->n_heads_read(), 5);
}

// What other processes have done to the file since then stays.
TEST_F(SessionStoreTest, ASessionThatIsSavedLeavesWithoutBeingWritten) {
  Put("a");
  ASSERT_TRUE(store_->Save(*store_->Find("a"), "b", Durability::kWritten).has_value());
  EXPECT_FALSE(store_->Find("a")->saved) << "not under its name";
  ASSERT_TRUE(store_->Save(*store_->Find("a"), "a", Durability::kWritten).has_value());
  EXPECT_EQ(Evict(), Kind::kGone);
  EXPECT_EQ(store_->Find("a"), nullptr);
  EXPECT_TRUE(store_->HasFile("a"));
  Put("a");  // as a response leaves it
  EXPECT_EQ(Evict(), Kind::kLeaves);
}

// Otherwise the eviction could write a file again that is being removed.
TEST_F(SessionStoreTest, ASessionWhoseFileIsWorkedOnIsNotEvicted) {
  Put("a");
  store_->BeginFileWork("a");
  store_->BeginFileWork("a");
  store_->BeginFileWork("b");
  store_->EndFileWork("a");
  EXPECT_EQ(store_->EvictableBytes({}), 0);
  EXPECT_EQ(Evict(), Kind::kNone);
  EXPECT_FALSE(store_->HasFile("a"));
  store_->EndFileWork("a");
  EXPECT_EQ(store_->n_file_work(), 1);
  EXPECT_GT(store_->EvictableBytes({}), 0);
  EXPECT_EQ(Evict(), Kind::kLeaves);
  EXPECT_TRUE(store_->HasFile("a"));
  EXPECT_EQ(store_->bytes(), 0);
}

TEST_F(SessionStoreTest, WhatCannotBeWrittenStaysForAWhile) {
  Put("a");
  std::filesystem::create_directory(path_ + "/a.session");  // in the place of the file
  EXPECT_EQ(Evict(), Kind::kLeaves);
  EXPECT_GT(store_->bytes(), 0);
  EXPECT_EQ(store_->EvictableBytes({}), 0);
  EXPECT_EQ(Evict(), Kind::kNone);
  std::filesystem::remove(path_ + "/a.session");
  clock_.Advance(9'000);
  EXPECT_EQ(Evict(), Kind::kNone);
  clock_.Advance(2'000);
  EXPECT_EQ(Evict(), Kind::kLeaves);
  EXPECT_EQ(store_->bytes(), 0);
  EXPECT_TRUE(store_->HasFile("a"));
}

// The session's bytes count until it is written.
TEST_F(SessionStoreTest, ASessionMayBeDeletedOrCopiedWhileItLeaves) {
  for (const bool deleted : {true, false}) {
    Put("a");
    const auto eviction = store_->Evict({});
    ASSERT_EQ(eviction.kind, Kind::kLeaves);
    if (deleted) {
      store_->Drop(*store_->Find("a"));
    } else {
      store_->Find("a")->copied = true;
    }
    EXPECT_GT(store_->bytes(), 0);
    EXPECT_EQ(store_->evicting_bytes(), store_->bytes()) << "whoever needs them waits";
    EXPECT_EQ(eviction.saving.write(), std::nullopt);
    store_->EndEvict(eviction.saving, nullptr);
    EXPECT_EQ(store_->bytes() > 0, !deleted);
    EXPECT_EQ(store_->Find("a") != nullptr, !deleted);
  }
}

}  // namespace
}  // namespace winnow::runtime

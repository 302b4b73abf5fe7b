// How long clients wait while others keep the server busy.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/http/testing/client.h"

namespace winnow::server {
namespace {

using testing::Client;
using testing::HttpServerTest;
using testing::PostHead;
using testing::WaitUntil;

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpServerTest, ManySmallBodiesLeaveAThreadForOthers) {
  std::promise<void> free;
  const auto is_free = free.get_future().share();
  const auto server =
      Listen({.n_threads = 2}, [&](const HttpRequest& request, const ExchangePtr& exchange) {
        if (!request.body.empty()) is_free.wait();
        exchange->Send({.body = "the end"});
      });
  ASSERT_NE(server, nullptr);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    ASSERT_TRUE(clients.back()->Send(PostHead(1000) + std::string(1000, 'x')));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Client other(server->port());
  ASSERT_TRUE(other.Send(kGet));
  EXPECT_TRUE(other.ReadUntil("the end", 1).starts_with("HTTP/1.1 200"));
  free.set_value();
  for (const auto& client : clients) {
    EXPECT_TRUE(client->ReadUntil("the end", 1).starts_with("HTTP/1.1 200")) << "none is refused";
  }
}

TEST_F(HttpServerTest, UnauthorizedRequestIsRefusedBeforeItsBody) {
  const auto server = Listen(
      HttpOptions(), Handlers{.handle = [](const HttpRequest&,
                                           const ExchangePtr& exchange) { exchange->Send({}); },
                              .check_head =
                                  [](const HttpRequest& head) {
                                    EXPECT_EQ(head.path, "/");
                                    EXPECT_EQ(head.Header("host"), "x");
                                    return ApiError{.status = 401, .message = "no key: the end"};
                                  }});
  ASSERT_NE(server, nullptr);
  Client client(server->port());
  ASSERT_TRUE(client.Send(
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_TRUE(client.ReadUntil("the end", 1).starts_with("HTTP/1.1 401"));
}

TEST_F(HttpServerTest, RefusalsAreAnsweredByTheHandlers) {
  const auto server = Listen(
      {.max_body_bytes = 100},
      Handlers{.handle = [](const HttpRequest&, const ExchangePtr&) {},
               .refuse =
                   [](const HttpRequest& head, const ExchangePtr& exchange, const ApiError& error) {
                     exchange->Send({.status = error.status,
                                     .body = head.method + " " + head.path + " the end"});
                   }});
  ASSERT_NE(server, nullptr);
  Client client(server->port());
  ASSERT_TRUE(client.Send(PostHead(101)));
  const std::string refused = client.ReadUntil("the end", 1);
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 413")) << refused;
}

TEST_F(HttpServerTest, SilentConnectionClosesBeforeIdleOne) {
  const auto server = Listen(
      {.header = std::chrono::milliseconds(100)},
      [](const HttpRequest&, const ExchangePtr& exchange) { exchange->Send({.body = "the end"}); });
  ASSERT_NE(server, nullptr);
  Client asks(server->port());
  Client silent(server->port());
  ASSERT_TRUE(asks.Send(kGet));
  EXPECT_TRUE(asks.ReadUntil("the end", 1).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(WaitUntil([&] { return silent.IsReadable(); })) << "closed";
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_TRUE(asks.Send(kGet));
  EXPECT_TRUE(asks.ReadUntil("the end", 1).starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, AClientThatCannotBeTakenIsTheOnlyOneLost) {
  std::atomic<int> n_taken{0};
  HttpOptions options;
  options.on_connection = [&n_taken] {
    if (++n_taken <= 2) throw std::bad_alloc();
  };
  const auto server = Listen(options, [](const HttpRequest&, const ExchangePtr& exchange) {
    exchange->Send({.body = "the end"});
  });
  ASSERT_NE(server, nullptr);
  for (const bool is_taken : {false, false, true}) {
    Client client(server->port());
    client.Send(kGet);
    EXPECT_EQ(client.ReadUntil("the end", 1).starts_with("HTTP/1.1 200"), is_taken);
  }
}

// No response says why: it would need the resources that the limit protects.
TEST_F(HttpServerTest, AConnectionBeyondTheLimitIsClosed) {
  // A silent connection may stay for longer than this test waits.
  const auto server = Listen(
      {.max_connections = 2, .header = std::chrono::minutes(1)},
      [](const HttpRequest&, const ExchangePtr& exchange) { exchange->Send({.body = "the end"}); });
  ASSERT_NE(server, nullptr);
  const auto is_answered = [](Client& client) {
    client.Send(kGet);
    return client.ReadUntil("the end", 1).starts_with("HTTP/1.1 200");
  };
  std::array<std::optional<Client>, 2> open;
  for (auto& client : open) {
    client.emplace(server->port());
    EXPECT_TRUE(is_answered(*client));
  }
  Client third(server->port());
  EXPECT_TRUE(WaitUntil([&] { return third.IsReadable(); })) << "closed";
  EXPECT_FALSE(is_answered(third));
  EXPECT_TRUE(is_answered(*open[0])) << "the others go on";
  open[1].reset();
  EXPECT_TRUE(WaitUntil([&] {
    Client next(server->port());
    return is_answered(next);
  })) << "one has closed";
}

// At most two are made at once (kMaxMemorySlots); the others wait.
TEST_F(HttpServerTest, FewAnswersThatTakeMuchMemoryAreMadeAtOnce) {
  std::mutex mutex;
  std::vector<std::pair<ExchangePtr, Exchange::MemorySlot>> made;
  const auto n_made = [&] {
    const std::lock_guard lock(mutex);
    return made.size();
  };
  const auto server = Listen({}, [&](const HttpRequest&, const ExchangePtr& exchange) {
    exchange->AcquireMemorySlot([&, exchange](const Exchange::MemorySlot& slot) {
      const std::lock_guard lock(mutex);
      made.emplace_back(exchange, slot);
    });
  });
  ASSERT_NE(server, nullptr);
  std::array<std::optional<Client>, 4> clients;
  for (auto& client : clients) {
    client.emplace(server->port());
    ASSERT_TRUE(client->Send(kGet));
  }
  ASSERT_TRUE(WaitUntil([&] { return n_made() == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(n_made(), 2U);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(WaitUntil([&] { return n_made() > 0; }));
    std::unique_lock lock(mutex);
    const auto [exchange, slot] = made.front();
    made.erase(made.begin());
    lock.unlock();
    exchange->Post([exchange = exchange, slot = slot] { exchange->Send({.body = "the end"}); });
  }
  for (auto& client : clients) {
    EXPECT_TRUE(client->ReadUntil("the end", 1).starts_with("HTTP/1.1 200"));
  }
}

}  // namespace
}  // namespace winnow::server

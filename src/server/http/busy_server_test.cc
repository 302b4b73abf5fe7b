// What clients may wait for, and for how long, while others keep the server busy.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <string>
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
  const auto server = Listen({.n_threads = 2}, [&](const Call& call, const ExchangePtr& exchange) {
    if (!call.body.empty()) is_free.wait();
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

}  // namespace
}  // namespace winnow::server

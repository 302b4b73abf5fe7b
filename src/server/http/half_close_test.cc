// Clients that end their side of the connection after their last request (printf | nc).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "server/http/testing/client.h"

namespace winnow::server {
namespace {

using testing::Client;
using testing::HttpServerTest;
using testing::PostHead;
using testing::WaitUntil;

std::string Get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"; }

// The path and the size of the body.
void AnswerAtOnce(const HttpRequest& request, const ExchangePtr& exchange) {
  exchange->Send({.body = request.path + " " + std::to_string(request.body.size()) + ";"});
}

TEST_F(HttpServerTest, RequestsBeforeTheEndAreAnswered) {
  const auto server = Listen({}, AnswerAtOnce);
  ASSERT_NE(server, nullptr);
  constexpr int kRequests = 20;
  std::string requests;
  std::string expected;
  for (int i = 0; i < kRequests; ++i) {
    requests += Get("/a") + PostHead(1000) + std::string(1000, 'x');
    expected += "/a 0;/ 1000;";
  }
  // A request that the end cuts off is dropped.
  for (const std::string rest : {"", "GET /cut", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"}) {
    Client client(server->port());
    ASSERT_TRUE(client.Send(requests + rest));
    client.EndSending();
    std::string bodies = client.ReadUntilClosed();
    for (size_t at = 0; (at = bodies.find("HTTP/1.1 200", at)) != std::string::npos;) {
      bodies.erase(at, bodies.find("\r\n\r\n", at) + 4 - at);
    }
    EXPECT_EQ(bodies, expected) << rest;
  }
}

// More than the server reads ahead while a response is made.
TEST_F(HttpServerTest, RequestsBeyondTheReadAheadAreAnsweredToo) {
  const auto server =
      Listen({.max_pipelined_bytes = 5000, .hangup = std::chrono::milliseconds(1)}, AnswerAtOnce);
  ASSERT_NE(server, nullptr);
  constexpr size_t kRequests = 2000;
  std::string requests;
  for (size_t i = 0; i < kRequests; ++i) requests += Get("/a");
  Client client(server->port());
  ASSERT_TRUE(client.Send(requests));
  client.EndSending();
  const std::string answers = client.ReadUntilClosed();
  EXPECT_EQ(std::count(answers.begin(), answers.end(), ';'), kRequests);
}

// A client that ends its side has mostly left: nothing more must be computed for it.
TEST_F(HttpServerTest, AResponseThatIsNotReadyIsCancelledAtTheEnd) {
  std::atomic<int> n_cancelled{0};
  const auto server = Listen({}, [&](const HttpRequest& request, const ExchangePtr& exchange) {
    if (request.path != "/later") return AnswerAtOnce(request, exchange);
    exchange->OnClosed([&] { ++n_cancelled; });  // and never answer
  });
  ASSERT_NE(server, nullptr);
  int n_asked = 0;
  for (const std::string& later :
       {Get("/later"), std::string("POST /later HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")}) {
    for (const size_t n_before : {0, 1, 5}) {
      std::string requests;
      for (size_t i = 0; i < n_before; ++i) requests += Get("/before");
      Client client(server->port());
      ASSERT_TRUE(client.Send(requests + later + Get("/behind")));
      client.EndSending();
      const std::string answers = client.ReadUntilClosed();
      EXPECT_EQ(std::count(answers.begin(), answers.end(), ';'), n_before);
      EXPECT_EQ(answers.find("/behind"), std::string::npos);
      ++n_asked;
      EXPECT_TRUE(WaitUntil([&] { return n_cancelled == n_asked; })) << later << n_before;
    }
  }
}

// The end lies behind more pipelined bytes than the server reads while the request waits.
TEST_F(HttpServerTest, AClientThatLeavesWhileItsRequestWaitsIsNoticed) {
  std::promise<void> entered, released;
  std::atomic<int> n_cancelled{0};
  const auto server = Listen({.n_threads = 1,
                              .max_pipelined_bytes = size_t{64} << 10,
                              .hangup = std::chrono::milliseconds(10)},
                             [&](const HttpRequest& request, const ExchangePtr& exchange) {
                               if (request.path == "/block") {
                                 entered.set_value();
                                 released.get_future().wait();
                                 return AnswerAtOnce(request, exchange);
                               }
                               exchange->OnClosed([&] { ++n_cancelled; });  // and never answer
                             });
  ASSERT_NE(server, nullptr);
  Client blocking(server->port());
  ASSERT_TRUE(blocking.Send("POST /block HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"));
  entered.get_future().wait();
  Client leaving(server->port());
  ASSERT_TRUE(leaving.Send(PostHead(1) + std::string(90'000, 'x')));
  leaving.EndSending();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // in which the server looks
  released.set_value();
  EXPECT_TRUE(WaitUntil([&] { return n_cancelled == 1; }));
}

}  // namespace
}  // namespace winnow::server

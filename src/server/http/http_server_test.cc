#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/allocations.h"
#include "server/http/testing/client.h"

namespace winnow::server {
namespace {

using testing::Client;
using testing::HttpServerTest;
using testing::PostHead;
using testing::WaitUntil;

TEST_F(HttpServerTest, NoFurtherRequestBeforeAnswersAreRead) {
  constexpr size_t kAnswerBytes = size_t{64} << 10;
  constexpr int kRequests = 1000;  // their responses are 62 MiB, more than any socket buffers
  constexpr std::string_view kEnd = "the end of it";
  std::atomic<int> n_answered{0};
  const auto server = Listen(
      {.max_queue_bytes = size_t{1} << 20}, [&](const HttpRequest&, const ExchangePtr& exchange) {
        ++n_answered;
        exchange->Send({.body = std::string(kAnswerBytes, 'x').append(kEnd)});
      });
  ASSERT_NE(server, nullptr);
  Client client(server->port(), 4096);
  std::string requests;
  for (int i = 0; i < kRequests; ++i) requests += "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(client.Send(requests));
  // Wait until no more requests are answered.
  int before = -1;
  while (before != n_answered) {
    before = n_answered;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_GT(n_answered, 0);
  EXPECT_LT(n_answered, 400) << "1 MiB waits, and the system takes some";
  const std::string answers = client.ReadUntil(kEnd, kRequests);
  EXPECT_EQ(n_answered, kRequests) << "all the others, once it reads";
  EXPECT_GT(answers.size(), kRequests * kAnswerBytes);
}

TEST_F(HttpServerTest, BodiesCountByWhatHasCome) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto server = Listen({.max_body_bytes = 2 * kMiB, .max_bodies_bytes = 5 * kMiB},
                             [](const HttpRequest& request, const ExchangePtr& exchange) {
                               exchange->Send({.body = std::to_string(request.body.size()) + "."});
                             });
  ASSERT_NE(server, nullptr);
  const uint16_t port = server->port();
  const auto answer_to = [port](size_t n_bytes) {
    Client client(port);
    client.Send(PostHead(n_bytes) + std::string(n_bytes, 'x'));
    const std::string answer = client.ReadUntil(".", 2);  // the first is in "HTTP/1.1"
    return answer.substr(0, sizeof("HTTP/1.1 200") - 1);
  };
  // If announced bodies counted, these would exceed the limit.
  std::array<Client, 4> announced = {Client(port), Client(port), Client(port), Client(port)};
  for (Client& client : announced) ASSERT_TRUE(client.Send(PostHead(2 * kMiB)));
  EXPECT_EQ(answer_to(2 * kMiB), "HTTP/1.1 200");
  // Two being received leave no room for a third large body, but for small ones.
  std::vector<std::unique_ptr<Client>> large;
  for (int i = 0; i < 3; ++i) {
    large.push_back(std::make_unique<Client>(port));
    ASSERT_TRUE(large.back()->Send(PostHead(2 * kMiB)));
  }
  for (const auto& client : large) client->Send(std::string(3 * kMiB / 2 - 1, 'x'));
  const auto is_refused = [](const auto& client) { return client->IsReadable(); };
  ASSERT_TRUE(WaitUntil([&] { return std::any_of(large.begin(), large.end(), is_refused); }));
  const auto refused = std::find_if(large.begin(), large.end(), is_refused);
  EXPECT_TRUE((*refused)->ReadUntil("at once", 1).starts_with("HTTP/1.1 503"));
  large.erase(refused);
  EXPECT_EQ(answer_to(60'000), "HTTP/1.1 200");
  large.pop_back();
  EXPECT_TRUE(WaitUntil([&] { return answer_to(kMiB) == "HTTP/1.1 200"; }));
}

constexpr size_t kSmallBuffers = size_t{40} << 10;

TEST_F(HttpServerTest, RequestsOfAllConnectionsTogether) {
  std::promise<ExchangePtr> waiting;
  const auto server =
      Listen({.max_buffers_bytes = kSmallBuffers, .hangup = std::chrono::milliseconds(10)},
             [&](const HttpRequest& request, const ExchangePtr& exchange) {
               if (request.path == "/wait") return waiting.set_value(exchange);
               exchange->Send({.body = std::to_string(request.body.size()) + "."});
             });
  ASSERT_NE(server, nullptr);
  const auto ask = [&](const std::string& request) {
    Client client(server->port());
    client.Send(request);
    return client.ReadUntil(".", 2);  // the first is in "HTTP/1.1"
  };
  const std::string post = PostHead(30'000) + std::string(30'000, 'x');
  EXPECT_TRUE(ask(post).starts_with("HTTP/1.1 200"));
  std::optional<Client> slow;
  EXPECT_TRUE(WaitUntil([&] {
    if (!slow || slow->IsReadable()) {  // refused: the request before still counts
      slow.emplace(server->port());
      slow->Send(post.substr(0, 29'000));
    }
    return ask(post).starts_with("HTTP/1.1 503");
  }));
  EXPECT_TRUE(ask(PostHead(1000) + std::string(1000, 'x')).starts_with("HTTP/1.1 200"))
      << "a little is free";
  slow.reset();
  EXPECT_TRUE(WaitUntil([&] { return ask(post).starts_with("HTTP/1.1 200"); }));
  // A client that pipelines waits until the shared buffers have room again; its response still
  // arrives.
  Client ahead(server->port());
  ASSERT_TRUE(ahead.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(200'000, 'x')));
  EXPECT_TRUE(WaitUntil([&] { return ask(post).starts_with("HTTP/1.1 503"); }));
  EXPECT_FALSE(ahead.IsReadable());
  const ExchangePtr answer = waiting.get_future().get();
  answer->Post([answer] { answer->Send({.body = "it came"}); });
  EXPECT_TRUE(ahead.ReadUntil("it came", 1).starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, BuffersOfPipelinedRequestsAreReleased) {
  std::promise<ExchangePtr> waiting;
  const auto server =
      Listen({.max_buffers_bytes = kSmallBuffers, .hangup = std::chrono::milliseconds(10)},
             [&](const HttpRequest& request, const ExchangePtr& exchange) {
               if (request.path == "/wait") return waiting.set_value(exchange);
               exchange->Send({.body = request.path == "/last" ? "the end" : "."});
             });
  ASSERT_NE(server, nullptr);
  const auto get = [](const std::string& path) {
    return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
  };
  std::string requests = get("/wait");
  while (requests.size() < 24'000) requests += get("/");
  Client client(server->port());
  ASSERT_TRUE(client.Send(requests + get("/last")));
  const auto answer_to_others = [&] {
    Client other(server->port());
    other.Send(PostHead(20'000) + std::string(20'000, 'x'));
    return other.ReadUntil(".", 2);  // the first is in "HTTP/1.1"
  };
  EXPECT_TRUE(WaitUntil([&] { return answer_to_others().starts_with("HTTP/1.1 503"); }));
  const ExchangePtr answer = waiting.get_future().get();
  answer->Post([answer] { answer->Send({.body = "it came"}); });
  EXPECT_TRUE(client.ReadUntil("the end", 1).ends_with("the end"));
  EXPECT_TRUE(WaitUntil([&] { return answer_to_others().starts_with("HTTP/1.1 200"); }))
      << "while the connection stays open";
}

TEST_F(HttpServerTest, SlowPipeliningClientGetsAllResponses) {
  // Each response is too small to count; together they exceed any socket buffer.
  const auto server = Listen({.max_buffers_bytes = kSmallBuffers}, [](const HttpRequest& request,
                                                                      const ExchangePtr& exchange) {
    exchange->Send({.body = request.path == "/last" ? "the end" : std::string(15'000, 'x')});
  });
  ASSERT_NE(server, nullptr);
  std::string requests;
  while (requests.size() < 24'000) requests += "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  Client client(server->port(), 4096);
  ASSERT_TRUE(client.Send(requests + "GET /last HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(WaitUntil([&] { return client.IsReadable(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // time to answer all
  EXPECT_TRUE(client.ReadUntil("the end", 1).ends_with("the end"));
}

TEST_F(HttpServerTest, AClosedConnectionHoldsNoBuffersWhileItsResponseIsComputed) {
  std::promise<ExchangePtr> waiting;
  const auto server =
      Listen({.max_buffers_bytes = kSmallBuffers, .hangup = std::chrono::milliseconds(10)},
             [&](const HttpRequest& request, const ExchangePtr& exchange) {
               if (request.path == "/wait") return waiting.set_value(exchange);
               exchange->Send({.body = "."});
             });
  ASSERT_NE(server, nullptr);
  const auto answer_to_others = [&] {
    Client other(server->port());
    other.Send(PostHead(20'000) + std::string(20'000, 'x'));
    return other.ReadUntil(".", 2);  // the first is in "HTTP/1.1"
  };
  std::optional<Client> ahead(server->port());
  ahead->ResetWhenClosed();
  ASSERT_TRUE(ahead->Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(24'000, 'x')));
  const ExchangePtr answer = waiting.get_future().get();
  EXPECT_TRUE(WaitUntil([&] { return answer_to_others().starts_with("HTTP/1.1 503"); }));
  ahead.reset();
  EXPECT_TRUE(WaitUntil([&] { return answer_to_others().starts_with("HTTP/1.1 200"); }));
}

TEST_F(HttpServerTest, ABodyThatWaitsForItsHandlerCountsAfterItsClientHasGone) {
  std::promise<void> entered, released;
  const auto server = Listen({.n_threads = 1, .max_buffers_bytes = kSmallBuffers},
                             [&](const HttpRequest& request, const ExchangePtr& exchange) {
                               if (request.path == "/block") {
                                 entered.set_value();
                                 released.get_future().wait();
                               }
                               exchange->Send({.body = "."});
                             });
  ASSERT_NE(server, nullptr);
  Client blocking(server->port());
  ASSERT_TRUE(blocking.Send("POST /block HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"));
  entered.get_future().wait();
  std::optional<Client> waiting(server->port());
  waiting->ResetWhenClosed();
  ASSERT_TRUE(waiting->Send(PostHead(30'000) + std::string(30'000, 'x')));
  const auto answer_to_others = [&] {
    Client other(server->port());
    other.Send(PostHead(20'000) + std::string(20'000, 'x'));
    return other.ReadUntil(".", 2);  // HTTP/1.1 has one too
  };
  EXPECT_TRUE(WaitUntil([&] { return answer_to_others().starts_with("HTTP/1.1 503"); }));
  waiting.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // in which the server notices
  EXPECT_TRUE(answer_to_others().starts_with("HTTP/1.1 503"));
  released.set_value();
  EXPECT_TRUE(WaitUntil([&] { return answer_to_others().starts_with("HTTP/1.1 200"); }));
}

TEST_F(HttpServerTest, AnswersOfAllConnectionsTogether) {
  constexpr size_t kAnswerBytes = size_t{16} << 20;  // more than any socket buffers
  const auto server = Listen({.max_buffers_bytes = 5 * kAnswerBytes / 2},
                             [](const HttpRequest& request, const ExchangePtr& exchange) {
                               const size_t n = request.path == "/large" ? kAnswerBytes : 0;
                               exchange->Send({.body = std::string(n, 'x') + "the end"});
                             });
  ASSERT_NE(server, nullptr);
  const std::string large = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
  std::array<std::optional<Client>, 2> unread;
  for (auto& client : unread) {
    client.emplace(server->port(), 4096);
    ASSERT_TRUE(client->Send(large));
    ASSERT_TRUE(WaitUntil([&] { return client->IsReadable(); }));
  }
  const auto answer_to = [&](const std::string& request) {
    Client client(server->port());
    client.Send(request);
    return client.ReadUntil("the end", 1);
  };
  EXPECT_EQ(answer_to(large), "") << "closed";
  EXPECT_NE(answer_to("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  EXPECT_GT(unread[0]->ReadUntil("the end", 1).size(), kAnswerBytes);
  EXPECT_GT(answer_to(large).size(), kAnswerBytes) << "one has been read";
}

TEST_F(HttpServerTest, LeavingIsNoticedBehindAFullBuffer) {
  std::atomic<int> n_asked{0};
  std::atomic<int> n_left{0};
  const auto server =
      Listen({.max_pipelined_bytes = size_t{64} << 10, .hangup = std::chrono::milliseconds(100)},
             [&](const HttpRequest&, const ExchangePtr& exchange) {
               ++n_asked;
               exchange->OnClosed([&n_left] { ++n_left; });  // and never answer
             });
  const std::string requests = "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(90'000, 'x');
  ASSERT_NE(server, nullptr);
  std::optional<Client> ends(server->port());
  ASSERT_TRUE(ends->Send(requests));
  std::optional<Client> resets(server->port());
  ASSERT_TRUE(resets->Send(requests));
  ASSERT_TRUE(WaitUntil([&] { return n_asked == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(n_left, 0) << "they wait for their answers";
  ends.reset();
  EXPECT_TRUE(WaitUntil([&] { return n_left == 1; }));
  resets->ResetWhenClosed();
  resets.reset();
  EXPECT_TRUE(WaitUntil([&] { return n_left == 2; }));
  EXPECT_EQ(n_asked, 2);
}

// Errors name the options as the caller does: the port is taken, a file is missing.
TEST(HttpServerErrors, NameOptions) {
  NullLog log;
  const auto listen = [&](const HttpOptions& options) {
    return HttpServer::Listen(options, {.handle = [](const HttpRequest&, const ExchangePtr&) {}},
                              log);
  };
  const auto first = listen({.port = 0}).value();
  HttpOptions taken = {.port = first->port()};
  EXPECT_TRUE(listen(taken).error().message.ends_with("; choose another with port"));
  taken.words.port = "--port";
  EXPECT_TRUE(listen(taken).error().message.ends_with("; choose another with --port"));
  HttpOptions secret = {
      .port = 0, .key_file = "/nonexistent/key", .cert_file = "/nonexistent/cert"};
  EXPECT_TRUE(listen(secret).error().message.starts_with("cert_file: /nonexistent/cert: "));
  secret.words.cert_file = "--ssl-cert-file";
  EXPECT_TRUE(listen(secret).error().message.starts_with("--ssl-cert-file: /nonexistent/cert: "));
}

// Memory may end when some of the threads have begun, whose allocations are the last ones of
// Listen, or when the server ends. (Those before are Asio's, whose strands do not survive it.)
TEST(HttpServerErrors, WithoutMemoryForAThreadNoneIsLeftRunning) {
  if (!winnow::testing::kCountsAllocations)
    GTEST_SKIP() << "skipped: not this program's operator new";
  NullLog log;
  int n_failed = 0;
  for (int n = 400; n > 0 && n_failed < 2; --n) {
    winnow::testing::RefuseAllocation(n);
    try {
      const auto server =
          HttpServer::Listen({.port = 0, .n_threads = 2},
                             {.handle = [](const HttpRequest&, const ExchangePtr&) {}}, log);
    } catch (const std::bad_alloc&) {
      ++n_failed;
    }
    winnow::testing::RefuseAllocation(0);
  }
  EXPECT_EQ(n_failed, 2);
}

// One of the two files alone would otherwise serve plain HTTP without a word.
TEST(HttpServerErrors, KeyAndCertificateNeedEachOther) {
  NullLog log;
  const auto problem = [&](const HttpOptions& options) {
    return HttpServer::Listen(options, {.handle = [](const HttpRequest&, const ExchangePtr&) {}},
                              log)
        .error()
        .message;
  };
  HttpOptions options = {.port = 0, .cert_file = "/nonexistent/cert"};
  EXPECT_EQ(problem(options), "key_file is missing: TLS needs it together with cert_file");
  options.words.key_file = "--ssl-key-file";
  options.words.cert_file = "--ssl-cert-file";
  EXPECT_EQ(problem(options),
            "--ssl-key-file is missing: TLS needs it together with --ssl-cert-file");
  EXPECT_EQ(problem({.port = 0, .key_file = "/nonexistent/key"}),
            "cert_file is missing: TLS needs it together with key_file");
}

}  // namespace
}  // namespace winnow::server

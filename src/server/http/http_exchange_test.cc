#include "server/http/http_exchange.h"

#include <gtest/gtest.h>

#include <vector>

namespace winnow::server {
namespace {

class FakeWire final : public Wire {
 public:
  void Queue(std::string bytes, std::string more, bool limited) override {
    out += bytes + more;
    any_limited |= limited;
  }
  void AnswerDone(bool keep_alive) override { done = keep_alive ? 'k' : 'c'; }
  void SetPings(bool on) override { pings = on; }
  void Post(std::function<void()> work) override { work(); }
  void PostWork(WorkSlots::Size size, std::function<void()> work) override {
    sizes.push_back(size);
    work();
  }
  void AcquireMemorySlot(std::function<void(Exchange::MemorySlot)> work) override { work({}); }
  bool Hold(size_t bytes) override {
    if (bytes > max_held) return false;
    held = bytes;
    return true;
  }
  void After(std::chrono::milliseconds, std::function<void()>) override { ++n_later; }

  std::string out;
  bool any_limited = false;
  bool pings = false;
  char done = 0;  // k: the connection is kept, c: closed
  int n_later = 0;
  size_t held = 0;
  size_t max_held = 100;
  std::vector<WorkSlots::Size> sizes;  // of long work
};

std::string ExtractBody(const std::string& answer) {
  return answer.substr(answer.find("\r\n\r\n") + 4);
}
bool Has(const std::string& answer, const std::string& line) {
  return answer.find("\r\n" + line + "\r\n") != std::string::npos;
}

TEST(HttpExchangeTest, WholeAnswer) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange exchange(wire, {});
  exchange.Send({.status = 404, .body = "{}", .headers = {{"x-a", "b"}}});
  EXPECT_TRUE(wire->out.starts_with("HTTP/1.1 404 Not Found\r\n")) << wire->out;
  EXPECT_TRUE(Has(wire->out, "Content-Length: 2"));
  EXPECT_TRUE(Has(wire->out, "Content-Type: application/json"));
  EXPECT_TRUE(Has(wire->out, "x-a: b"));
  EXPECT_TRUE(Has(wire->out, "Connection: keep-alive"));
  EXPECT_EQ(ExtractBody(wire->out), "{}");
  EXPECT_EQ(wire->done, 'k');
  const std::string before = wire->out;
  exchange.Send({.body = "again"});
  exchange.BeginStream({});
  exchange.Write("x");
  exchange.End();
  EXPECT_EQ(wire->out, before) << "one request has one answer";
}

TEST(HttpExchangeTest, HeadHasNoBody) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange(wire, {.is_head = true}).Send({.body = "hello"});
  EXPECT_TRUE(Has(wire->out, "Content-Length: 5"));
  EXPECT_EQ(ExtractBody(wire->out), "");

  const auto streaming = std::make_shared<FakeWire>();
  HttpExchange exchange(streaming, {.is_head = true});
  int n_closed = 0;
  exchange.OnClosed([&] { ++n_closed; });
  exchange.BeginStream({.content_type = "text/event-stream"});
  exchange.Write("data");
  EXPECT_EQ(ExtractBody(streaming->out), "");
  EXPECT_EQ(n_closed, 1) << "what makes the stream can stop";
  EXPECT_EQ(streaming->done, 'k');
}

TEST(HttpExchangeTest, NoContentHasNoLength) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange(wire, {}).Send({.status = 204});
  EXPECT_EQ(wire->out.find("Content-"), std::string::npos);

  const auto known = std::make_shared<FakeWire>();
  HttpExchange(known, {}).Send({.status = 304, .headers = {{"etag", "\"a\""}}});
  EXPECT_TRUE(known->out.starts_with("HTTP/1.1 304 Not Modified\r\n")) << known->out;
  EXPECT_TRUE(Has(known->out, "etag: \"a\""));
  EXPECT_EQ(known->out.find("Content-"), std::string::npos) << "the length would be the page's";
}

TEST(HttpExchangeTest, StreamIsChunked) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange exchange(wire, {});
  exchange.BeginStream({.content_type = "text/event-stream"});
  EXPECT_TRUE(wire->pings);
  exchange.Write("0123456789abcdef!");
  exchange.Write("");  // an empty chunk would end the stream
  exchange.End();
  EXPECT_TRUE(Has(wire->out, "Transfer-Encoding: chunked"));
  EXPECT_EQ(ExtractBody(wire->out), "11\r\n0123456789abcdef!\r\n0\r\n\r\n");
  EXPECT_TRUE(wire->any_limited) << "who does not read is cut off";
  EXPECT_EQ(wire->done, 'k');
}

TEST(HttpExchangeTest, OldClientsGetTheStreamAsItIs) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange exchange(wire, {.is_http_1_0 = true});
  exchange.BeginStream({});
  exchange.Write("x");
  exchange.End();
  EXPECT_EQ(ExtractBody(wire->out), "x");
  EXPECT_TRUE(Has(wire->out, "Connection: close"));
  EXPECT_EQ(wire->done, 'c');
}

TEST(HttpExchangeTest, ClientThatHasGone) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange exchange(wire, {});
  int n_closed = 0;
  exchange.OnClosed([&] { ++n_closed; });
  exchange.BeginStream({});
  exchange.Closed();
  exchange.Closed();
  EXPECT_EQ(n_closed, 1);
  const std::string before = wire->out;
  exchange.Write("x");
  exchange.After({}, [] {});
  exchange.End();
  EXPECT_EQ(wire->out, before);
  EXPECT_EQ(wire->n_later, 0);
  EXPECT_EQ(wire->done, 0);
}

TEST(HttpExchangeTest, AnswerThatIsOutIsNotCancelled) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange exchange(wire, {});
  int n_closed = 0;
  exchange.OnClosed([&] { ++n_closed; });
  exchange.Send({});
  exchange.Closed();
  EXPECT_EQ(n_closed, 0);
}

TEST(HttpExchange, WhatIsHeldCountsUntilItIsSent) {
  const auto wire = std::make_shared<FakeWire>();
  HttpExchange exchange(wire, {});
  EXPECT_TRUE(exchange.Hold(100));
  EXPECT_FALSE(exchange.Hold(101));
  EXPECT_EQ(wire->held, 100U);
  exchange.Send({.body = "{}"});
  EXPECT_EQ(wire->held, 0U);
  HttpExchange left(wire, {});
  EXPECT_TRUE(left.Hold(50));
  left.Closed();
  EXPECT_EQ(wire->held, 0U);
  EXPECT_TRUE(left.Hold(1000)) << "nobody waits for it";
  EXPECT_EQ(wire->held, 0U);
}

TEST(HttpExchange, LongWorkWaitsForItsTurn) {
  using Size = WorkSlots::Size;
  const auto wire = std::make_shared<FakeWire>();
  int n = 0;
  HttpExchange(wire, {}).PostWork([&n] { ++n; });
  HttpExchange(wire, {.size = Size::kLarge}).PostWork([&n] { ++n; });
  EXPECT_EQ(wire->sizes, (std::vector{Size::kSmall, Size::kLarge}));
  HttpExchange(wire, {.size = Size::kLarge}).Post([&n] { ++n; });
  EXPECT_EQ(wire->sizes.size(), 2U) << "pieces of an answer do not wait";
  EXPECT_EQ(n, 3);
}

}  // namespace
}  // namespace winnow::server

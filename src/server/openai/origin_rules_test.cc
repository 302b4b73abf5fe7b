#include "server/openai/origin_rules.h"

#include <gtest/gtest.h>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

namespace winnow::server {
namespace {

using testing::Fixture;
using testing::TextAt;

constexpr const char* kSite = "sec-fetch-site";

HttpRequest MakePost(HttpRequest::Pairs headers) {
  headers.emplace_back("content-type", "text/plain");  // a page may send this without a preflight
  return {.method = "POST",
          .path = "/v1/completions",
          .headers = std::move(headers),
          .body = R"({"prompt": "a"})"};
}

TEST(OriginRulesTest, PagesOfOtherOriginsMayNotChangeAnything) {
  Fixture fixture;
  const auto ask = [&](const HttpRequest::Pairs& headers) {
    return fixture.Exercise(MakePost(headers))->status();
  };
  // A page from another port of this machine, with the headers that browsers send, and pages loaded
  // over http from elsewhere in the network, without Sec-Fetch-Site.
  EXPECT_EQ(
      ask({{"host", "localhost:8080"}, {"origin", "http://localhost:3000"}, {kSite, "same-site"}}),
      403);
  EXPECT_EQ(ask({{"host", "192.168.1.5:8080"}, {"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(ask({{"host", "192.168.1.5:8080"}, {"origin", "null"}}), 403);
  EXPECT_EQ(ask({{"host", "localhost:8080"}, {kSite, "cross-site"}}), 403);
  EXPECT_EQ(ask({{"host", "a.example"}, {"origin", "ftp://a.example"}}), 403);
  HttpRequest erase = MakePost({{"host", "localhost:8080"}, {"origin", "http://localhost:3000"}});
  erase.method = "DELETE";
  erase.path = "/v1/sessions/a";
  EXPECT_EQ(fixture.Exercise(erase)->status(), 403);
  EXPECT_TRUE(fixture.backend.requests.empty());

  // Its own page, also behind a proxy that speaks TLS or that forwards another Host.
  EXPECT_EQ(ask({{"host", "localhost:8080"},
                 {"origin", "http://localhost:8080"},
                 {kSite, "same-origin"}}),
            200);
  EXPECT_EQ(ask({{"host", "192.168.1.5:8080"}, {"origin", "http://192.168.1.5:8080"}}), 200);
  EXPECT_EQ(ask({{"host", "Chat.example.com"}, {"origin", "https://chat.example.com"}}), 200);
  EXPECT_EQ(ask({{"host", "chat.example.com:443"}, {"origin", "https://chat.example.com"}}), 200);
  EXPECT_EQ(ask({{"host", "127.0.0.1:8081"},
                 {"origin", "https://chat.example.com"},
                 {kSite, "same-origin"}}),
            200);
  EXPECT_EQ(ask({{"host", "127.0.0.1:8081"},
                 {"x-forwarded-host", "box, inner"},
                 {"origin", "http://box"}}),
            200);
  // Programs and browser extensions.
  EXPECT_EQ(ask({}), 200);
  EXPECT_EQ(ask({{"host", "chat.example.com"}}), 200);
  EXPECT_EQ(ask({{"origin", "chrome-extension://abc"}, {kSite, "none"}}), 200);
}

TEST(OriginRulesTest, AllowedOriginsMay) {
  Fixture one({.cors_origin = "https://a.example"});
  Fixture all({.cors_origin = "*"});
  const auto ask = [](Fixture& fixture, const char* origin) {
    return fixture.Exercise(MakePost({{"host", "localhost"}, {"origin", origin}}))->status();
  };
  EXPECT_EQ(ask(one, "https://a.example"), 200);
  EXPECT_EQ(ask(one, "http://a.example"), 403);
  EXPECT_EQ(ask(one, "https://a.example.evil"), 403);
  EXPECT_EQ(ask(all, "https://evil.example"), 200);
}

// DNS rebinding: evil.example now resolves to 127.0.0.1, and its page sends requests to "its own"
// host.
TEST(OriginRulesTest, NamesThatOthersHavePointedHereAreNotItsOwn) {
  Fixture open({.loopback = true});
  Fixture keyed({.api_keys = {"k"}, .loopback = true});
  Fixture listening;
  Fixture allowed({.cors_origin = "http://chat.example.com:8080", .loopback = true});
  const auto post = [](Fixture& fixture, const std::string& host) {
    return fixture
        .Exercise(MakePost({{"host", host}, {"origin", "http://" + host}, {"x-api-key", "k"}}))
        ->status();
  };
  const auto read = [](Fixture& fixture, const std::string& path, const std::string& host) {
    return fixture
        .Exercise({.method = "GET", .path = path, .headers = {{"host", host}, {"x-api-key", "k"}}})
        ->status();
  };
  for (const char* host :
       {"evil.example:8080", "localhost.evil.example", "1.2.3.4.evil", "a.locally"}) {
    SCOPED_TRACE(host);
    EXPECT_EQ(post(open, host), 403);
    EXPECT_EQ(read(open, "/v1/sessions", host), 403);
    EXPECT_EQ(read(open, "/slots", host), 403);
    EXPECT_EQ(read(open, "/v1/models", host), 200) << "nobody's secret";
    EXPECT_EQ(post(keyed, host), 200) << "it has no key";
    EXPECT_EQ(read(keyed, "/v1/sessions", host), 200);
    EXPECT_EQ(post(listening, host), 200) << "names of a network are not known here";
  }
  for (const char* host :
       {"localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.168.1.5", "box:8080", "LOCALHOST.",
        "a.localhost", "host.docker.internal:8080", "box.local"}) {
    SCOPED_TRACE(host);
    EXPECT_EQ(post(open, host), 200);
    EXPECT_EQ(read(open, "/v1/sessions", host), 200);
  }
  EXPECT_EQ(read(open, "/v1/sessions", ""), 200);
  EXPECT_EQ(post(allowed, "chat.example.com:8080"), 200);
  EXPECT_EQ(read(allowed, "/v1/sessions", "chat.example.com:8080"), 200);
  EXPECT_EQ(read(allowed, "/v1/sessions", "evil.example:8080"), 403);
  // Programs, for example through a proxy on the same machine.
  EXPECT_EQ(open.Exercise(MakePost({{"host", "chat.example.com"}}))->status(), 200);
  const auto refused = open.Exercise(
      {.method = "GET", .path = "/v1/sessions", .headers = {{"host", "evil.example"}}});
  EXPECT_NE(TextAt(refused->json(), "error.message").find("start it with api_keys {KEY}, or with"),
            std::string::npos);
  Fixture command(
      {.loopback = true, .words = {.api_key = "--api-key KEY", .cors = "--cors ORIGIN"}});
  const auto told = command.Exercise(
      {.method = "GET", .path = "/v1/sessions", .headers = {{"host", "evil.example"}}});
  EXPECT_NE(TextAt(told->json(), "error.message")
                .find("start it with --api-key KEY, or with --cors ORIGIN to allow"),
            std::string::npos);
}

TEST(OriginRulesTest, PreflightsAllowTheHeadersOfClients) {
  Fixture fixture({.cors_origin = "https://a.example"});
  const auto allowed = [&](const std::string& asked) {
    const auto answer = fixture.Exercise(
        {.method = "OPTIONS",
         .path = "/v1/chat/completions",
         .headers = {{"origin", "https://a.example"}, {"access-control-request-headers", asked}}});
    for (const auto& [name, value] : answer->response().headers) {
      if (name == "access-control-allow-headers") return value;
    }
    return std::string();
  };
  const std::string openai = "authorization,content-type,x-stainless-lang,x-stainless-os";
  EXPECT_EQ(allowed(openai), openai);
  const std::string usual = "authorization, content-type, x-api-key, x-session";
  for (const std::string& odd :
       {std::string(), std::string("a;b"), std::string("a\x01"), std::string(5000, 'a')}) {
    EXPECT_EQ(allowed(odd), usual);
  }
}

TEST(KeysTest, EitherHeaderMayHaveIt) {
  Fixture fixture({.api_keys = {"k"}});
  const auto ask = [&](const std::string& own, const std::string& authorization) {
    return fixture
        .Exercise({.method = "GET",
                   .path = "/v1/models",
                   .headers = {{"x-api-key", own}, {"authorization", authorization}}})
        ->status();
  };
  EXPECT_EQ(ask("k", ""), 200);
  EXPECT_EQ(ask("k", "Bearer of another server"), 200);
  EXPECT_EQ(ask("of another server", "bearer k"), 200);
  EXPECT_EQ(ask("", "Basic k"), 401);
  EXPECT_EQ(ask("", ""), 401);
}

// The head alone is refused as the whole request would be.
TEST(KeysTest, AHeadIsRefusedAsItsRequestWouldBe) {
  Fixture fixture({.api_keys = {"k"}, .cors_origin = "https://a.example"});
  const auto refused = [&](const HttpRequest& head) {
    const auto error = fixture.service.CheckHead(head);
    if (error) {
      EXPECT_EQ(fixture.Exercise(head)->status(), error->status);
    }
    return error ? error->status : 0;
  };
  EXPECT_EQ(refused({.method = "GET", .path = "/health"}), 0);
  EXPECT_EQ(refused({.method = "GET", .path = "/"}), 0);
  EXPECT_EQ(refused({.method = "OPTIONS", .path = "/v1/models"}), 0);
  EXPECT_EQ(refused({.method = "POST", .path = "/v1/chat/completions"}), 401);
  EXPECT_EQ(refused({.method = "POST",
                     .path = "/v1/chat/completions",
                     .headers = {{"host", "b.example"}, {"origin", "https://evil.example"}}}),
            403);
  const auto exchange = std::make_shared<testing::FakeExchange>();
  fixture.service.Refuse({.method = "POST", .headers = {{"origin", "https://a.example"}}}, exchange,
                         {.status = 503, .message = "full"});
  const HttpRequest::Pairs expected = {{"retry-after", "1"},
                                       {"access-control-allow-origin", "https://a.example"},
                                       {"vary", "origin"}};
  EXPECT_EQ(exchange->response().headers, expected);
  EXPECT_NE(
      fixture.service.metrics().Text({}, {}).find("winnow_http_replies_total{status=\"503\"} 1"),
      std::string::npos);
}

}  // namespace
}  // namespace winnow::server

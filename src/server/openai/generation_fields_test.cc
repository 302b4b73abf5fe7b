#include <gtest/gtest.h>

#include <string>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

// Values that OpenAI's and llama-server's API understand differently.
namespace winnow::server {
namespace {

using testing::Fixture;
using testing::IntAt;
using testing::TextAt;

std::string With(const std::string& more) { return R"({"prompt": "he", )" + more + "}"; }

// llama-server takes the nearest value that it can use.
TEST(GenerationFieldsTest, LlamaServersPathLimitsValues) {
  Fixture fixture;
  ASSERT_EQ(fixture
                .Post("/completion", With(R"("temperature": -1, "top_p": 2, "min_p": -0.5,
                                             "typical_p": 1.5, "top_k": -7, "n_probs": 1000000)"))
                ->status(),
            200);
  const runtime::Request& request = fixture.backend.requests.at(0);
  EXPECT_EQ(request.sampler.temperature, 0) << "greedy";
  EXPECT_EQ(request.sampler.top_p, 1);
  EXPECT_EQ(request.sampler.min_p, 0);
  EXPECT_EQ(request.sampler.typical_p, 1);
  EXPECT_EQ(request.sampler.top_k, -1);
  EXPECT_EQ(request.n_probs, std::min<int64_t>(100, fixture.backend.tokenizer().vocabulary_size()));
  fixture.Post("/completion", With(R"("n_probs": -1)"));
  EXPECT_EQ(fixture.backend.requests.back().n_probs, -1);
  for (const char* wrong : {R"("temperature": "hot")", R"("n_probs": "2")", R"("top_k": 0.5)",
                            R"("repeat_penalty": 0)", R"("n_predict": -2)"}) {
    EXPECT_EQ(fixture.Post("/completion", With(wrong))->status(), 400) << wrong;
  }
}

TEST(GenerationFieldsTest, OpenAisPathsRefuseThem) {
  Fixture fixture;
  for (const char* name : {"temperature", "top_p", "min_p", "typical_p", "top_k", "n_probs"}) {
    const auto refused = fixture.Post("/v1/completions", With("\"" + std::string(name) + "\": -2"));
    EXPECT_EQ(refused->status(), 400) << name;
    EXPECT_EQ(TextAt(refused->json(), "error.param"), name);
  }
}

TEST(GenerationFieldsTest, LlamaServersSeedForARandomOne) {
  Fixture fixture;
  const auto seeds = [&](const char* path, const char* seed) {
    for (int i = 0; i < 2; ++i) fixture.Post(path, With(std::string(R"("seed": )") + seed));
    const auto& requests = fixture.backend.requests;
    return std::pair(requests[requests.size() - 2].sampler.seed, requests.back().sampler.seed);
  };
  for (const char* random : {"4294967295", "-1"}) {
    const auto [first, second] = seeds("/completion", random);
    EXPECT_NE(first, second) << random;
  }
  EXPECT_EQ(seeds("/completion", "4294967294"),
            std::pair(uint64_t{4294967294}, uint64_t{4294967294}));
  EXPECT_EQ(seeds("/v1/completions", "4294967295"),
            std::pair(uint64_t{4294967295}, uint64_t{4294967295}));
}

TEST(GenerationFieldsTest, ATextCompletionMayOnlyReadItsPrompt) {
  Fixture fixture;
  for (const char* name : {"max_tokens", "n_predict"}) {
    const std::string body = With("\"" + std::string(name) + "\": 0");
    EXPECT_EQ(fixture.Post("/v1/completions", body)->status(), 200);
    EXPECT_EQ(fixture.backend.requests.back().max_tokens, 0);
  }
  const auto refused =
      fixture.Post("/v1/chat/completions",
                   R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 0})");
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(TextAt(refused->json(), "error.param"), "max_tokens");
}

}  // namespace
}  // namespace winnow::server

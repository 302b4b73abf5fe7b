#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/testing/tiny_model.h"
#include "winnow/winnow.h"

namespace winnow {

// Base of the tests of the public headers, on a tiny model with random weights.
class TinyModelTest : public testing::Test {
 protected:
  explicit TinyModelTest(int n_threads) : n_threads_(n_threads) {}

  void SetUp() override {
    path_ = testing::TempDir() + "api_test_" + std::to_string(getpid()) + ".gguf";
    model::testing::TinySpec spec;
    auto builder = model::testing::TinyBuilder(spec);
    model::testing::AddTinyTokenizer(builder, spec.vocabulary);
    builder.Write(path_);
    auto opened = Model::Open(path_, {.threads = n_threads_});
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    model_ = std::make_unique<Model>(*std::move(opened));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static std::vector<Token> Document(int n) {
    std::vector<Token> tokens(static_cast<size_t>(n));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<Token>((i * 31 + 5) % 70);
    }
    return tokens;
  }
  static double LogProbability(std::span<const float> logits, Token token) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    return static_cast<double>(logits[static_cast<size_t>(token)]) - std::log(sum);
  }
  static GenerateOptions Greedy(int64_t max_tokens) {
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.sampling.temperature = 0;
    // EOS, which random weights could generate at any time.
    options.sampling.logit_bias = {{2, -std::numeric_limits<float>::infinity()}};
    return options;
  }

  int n_threads_;
  std::string path_;
  std::unique_ptr<Model> model_;
  const std::vector<Token> prompt_ = {5, 9, 33, 21};
};

}  // namespace winnow

// The whole engine against llama.cpp: logits of a small random model for every architecture and
// weight type. The expected logits are committed; README.md describes how they were made.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>

#include "kernels/backends.h"
#include "oracle_case.h"

namespace winnow::oracle {
namespace {

constexpr char kFolder[] = "tests/oracle/data";

// Bounds on the relative error for files that are not quantised. With F32 only the order of sums
// differs.
constexpr double kRelativeErrorF32 = 1e-5;
// Half-precision weights may be multiplied with activations rounded to half precision.
constexpr double kRelativeErrorF16 = 1e-3;
// Where the CPU multiplies BF16, prefill rounds activations to it.
constexpr double kRelativeErrorBf16 = 1e-2;
// llama.cpp takes GELU from a table of half-precision numbers: an F64 recomputation differs from it
// by 3e-4, and agrees to 6e-6 when it rounds the same way.
constexpr double kRelativeErrorGelu = 1e-3;
// For quantised files: activations are rounded to 8 bits.
constexpr double kKld = 1e-3;

double RelativeErrorBound(const Case& c, const std::string& target) {
  if (c.architecture == "falcon") return kRelativeErrorGelu;
  if (c.weights == "BF16" && target.empty()) return kRelativeErrorBf16;
  // The reference backend does not round activations, for any weights.
  return c.weights == "F32" || target == "reference" ? kRelativeErrorF32 : kRelativeErrorF16;
}

Case ReadCase(const std::string& name) {
  auto read = Case::Read(std::string(kFolder) + "/" + name + ".safetensors");
  EXPECT_TRUE(read.has_value()) << read.error().message;
  return read.has_value() ? std::move(read).value() : Case{};
}

class Oracle : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Oracle, LogitsAgree) {
  const auto& [name, target] = GetParam();
  const Case c = ReadCase(name);
  ASSERT_FALSE(c.tokens.empty());
  const auto computed = ComputeLogits(c, target);
  ASSERT_TRUE(computed.has_value()) << computed.error().message;
  const Distance exact = Measure(computed.value(), c.exact, c.vocabulary);
  if (!c.quantised()) {
    std::printf("relative error %.2e, largest difference %.2e\n", exact.relative_error,
                exact.max_difference);
    EXPECT_LE(exact.relative_error, RelativeErrorBound(c, target));
    return;
  }
  const Distance same = Measure(computed.value(), c.same, c.vocabulary);
  std::printf("KLD %.2e from llama.cpp, %.2e from exact activations (llama.cpp itself %.2e)\n",
              same.kld, exact.kld, c.own_kld);
  EXPECT_LE(same.kld, kKld);
  EXPECT_LE(exact.kld, kKld);
  // Compares how the blocks of this type are decoded, without the rounding of activations.
  if (target == "reference") {
    EXPECT_LE(exact.relative_error, RelativeErrorBound(c, target));
  }
}

// On an instruction set without products of BF16.
TEST(OracleData, Bf16WeightsWithActivationsInF32) {
  const Case c = ReadCase("llama-gqa-BF16");
  const auto computed = ComputeLogits(c, kernels::CpuTargets().back());
  ASSERT_TRUE(computed.has_value()) << computed.error().message;
  EXPECT_LE(Measure(computed.value(), c.exact, c.vocabulary).relative_error, kRelativeErrorF32);
}

std::string TestName(const ::testing::TestParamInfo<Oracle::ParamType>& param) {
  std::string name = std::get<0>(param.param) + "_" +
                     (std::get<1>(param.param).empty() ? "cpu" : std::get<1>(param.param));
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, Oracle,
                         ::testing::Combine(::testing::ValuesIn(CaseNames(kFolder)),
                                            ::testing::Values("", "reference")),
                         TestName);

TEST(OracleData, CoversEveryArchitectureAndWeightType) {
  std::set<std::string> architectures, weights;
  for (const std::string& name : CaseNames(kFolder)) {
    const Case c = ReadCase(name);
    architectures.insert(c.architecture);
    weights.insert(c.weights);
  }
  EXPECT_EQ(architectures, (std::set<std::string>{"falcon", "llama", "phi3", "qwen2", "qwen3"}));
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K",
                           "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    EXPECT_EQ(weights.count(type), 1U) << type;
  }
}

// The same weights with another RoPE differ by much more than the bounds.
TEST(OracleData, BoundsTellRopeScalingsApart) {
  const Case plain = ReadCase("llama-gqa-F32");
  for (const char* name : {"llama-linear-F32", "llama-yarn-F32", "llama-rope-freqs-F32"}) {
    const Distance distance = Measure(plain.exact, ReadCase(name).exact, plain.vocabulary);
    EXPECT_GT(distance.relative_error, 100 * kRelativeErrorF32) << name;
  }
  const Case brief = ReadCase("phi3-longrope-F32.short"), wide = ReadCase("phi3-longrope-F32.long");
  EXPECT_GT(Measure(wide.exact, brief.exact, brief.vocabulary).relative_error,
            100 * kRelativeErrorF32);
}

TEST(Measure, OfKnownNumbers) {
  // One row over two tokens: p = (1/2, 1/2), q = (3/4, 1/4).
  const Distance distance = Measure({std::log(3.0f), 0.0f}, {0.0f, 0.0f}, 2);
  EXPECT_NEAR(distance.kld, 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-7);
  EXPECT_NEAR(distance.max_difference, std::log(3.0), 1e-6);
  const Distance half = Measure({3.0f, 4.5f, 0.0f, 0.0f}, {3.0f, 4.0f, 0.0f, 0.0f}, 2);
  EXPECT_NEAR(half.relative_error, 0.1, 1e-7);
}

}  // namespace
}  // namespace winnow::oracle

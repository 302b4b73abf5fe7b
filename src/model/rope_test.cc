#include "model/rope.h"
#include "kernels/backends.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

namespace winnow::model {
namespace {

using kernels::Matrix;
using Scaling = RopeParameters::Scaling;

RopeParameters Plain(int n_rotated) {
  RopeParameters rope;
  rope.n_rotated = n_rotated;
  rope.original_context = 2048;
  return rope;
}

void ExpectNear(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

std::vector<float> Rotate(std::vector<float> x, const RopeParameters& rope, int32_t position) {
  const auto backend = kernels::MakeReferenceBackend();
  RopePositions positions(*backend, rope, 64);
  const auto table = positions.Cover(position + 1).value();
  const int64_t n = static_cast<int64_t>(x.size());
  const auto storage = backend->Allocate(n * 4).value();
  const Matrix row = {storage.get(), 0, 1, n, n};
  backend->Write(row, x);
  backend->Rope(row, static_cast<int>(n), {&position, 1}, *table);
  backend->Read(row, x);
  return x;
}

TEST(Rope, PairsAtPosition3) {
  RopeParameters rope = Plain(4);
  rope.interleaved = false;
  const std::vector<float> split = Rotate({1, 2, 3, 4}, rope, 3);
  const std::vector<float> split_expected = {-1.413353f, 1.879118f, -2.828857f, 4.058191f};
  rope.interleaved = true;
  const std::vector<float> interleaved = Rotate({1, 2, 3, 4}, rope, 3);
  const std::vector<float> interleaved_expected = {-1.272233f, -1.838865f, 2.878668f, 4.088187f};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(split[i], split_expected[i], 2e-6) << i;
    EXPECT_NEAR(interleaved[i], interleaved_expected[i], 2e-6) << i;
  }
}

TEST(Rope, TurnsOnlyTheFirstDimensions) {
  RopeParameters rope = Plain(2);
  rope.interleaved = false;
  const std::vector<float> x = Rotate({1, 2, 3, 4}, rope, 1);
  EXPECT_NEAR(x[0], std::cos(1.0) - 2 * std::sin(1.0), 1e-6);
  EXPECT_NEAR(x[1], std::sin(1.0) + 2 * std::cos(1.0), 1e-6);
  EXPECT_EQ(x[2], 3);
  EXPECT_EQ(x[3], 4);
}

TEST(RopeAngles, Plain) { ExpectNear(RopeAngles(Plain(8), 2048), {1, 0.1, 0.01, 0.001}); }

TEST(RopeAngles, Linear) {
  RopeParameters rope = Plain(4);
  rope.scaling = Scaling::kLinear;
  rope.factor = 8;
  ExpectNear(RopeAngles(rope, 2048), {0.125, 0.00125});
  EXPECT_DOUBLE_EQ(RopeMagnitude(rope), 1);
}

TEST(RopeAngles, Yarn) {
  // c(32) = 8 ln(2048 / (2 pi 32)) / (2 ln 10000) = 1.008 -> low 1; c(1) = 2.513 -> high 3. Pairs 0
  // and 1 keep their angle, pair 2 is halfway, and the angle of pair 3 is divided by 4.
  RopeParameters rope = Plain(8);
  rope.scaling = Scaling::kYarn;
  rope.factor = 4;
  ExpectNear(RopeAngles(rope, 8192), {1, 0.1, 0.01 * (0.5 / 4 + 0.5), 0.00025});
  EXPECT_NEAR(RopeMagnitude(rope), 1.138629436, 1e-9);
  rope.yarn_ext_factor = 0;  // pure interpolation
  ExpectNear(RopeAngles(rope, 8192), {0.25, 0.025, 0.0025, 0.00025});
  EXPECT_DOUBLE_EQ(RopeMagnitude(rope), 1);
}

TEST(RopeAngles, FrequencyFactorsByContextInUse) {
  RopeParameters rope = Plain(4);
  rope.scaling = Scaling::kLongRope;
  rope.attention_factor = 1.19;
  rope.frequency_factors = {1, 2};
  rope.frequency_factors_long = {4, 5};
  ExpectNear(RopeAngles(rope, 2048), {1, 0.005});
  ExpectNear(RopeAngles(rope, 2049), {0.25, 0.002});
  EXPECT_DOUBLE_EQ(RopeMagnitude(rope), 1.19);
}

TEST(RopePositions, GrowsWithThePositionsInUse) {
  const auto backend = kernels::MakeReferenceBackend();
  RopeParameters rope = Plain(4);
  rope.attention_factor = 0.5;
  RopePositions positions(*backend, rope, 1'000'000'000);
  const auto few = positions.Cover(1).value();
  EXPECT_LE(few->table.rows, 2048);
  const auto many = positions.Cover(3000).value();
  EXPECT_EQ(positions.Cover(2000).value(), many);
  const Matrix table = many->table;
  EXPECT_GE(table.rows, 3000);
  EXPECT_LE(table.rows, 8192);
  for (const int64_t position : {0, 1023, 1024, 2999}) {
    std::array<float, 4> row;
    backend->Read(table.Rows(position, 1), row);
    const double p = static_cast<double>(position);
    EXPECT_NEAR(row[0], 0.5 * std::cos(p), 1e-7);
    EXPECT_NEAR(row[1], 0.5 * std::cos(p / 100), 1e-7);
    EXPECT_NEAR(row[2], 0.5 * std::sin(p), 1e-7);
    EXPECT_NEAR(row[3], 0.5 * std::sin(p / 100), 1e-7);
  }
  // The smaller table stays valid while it is held.
  std::array<float, 4> old_row, new_row;
  backend->Read(few->table.Rows(7, 1), old_row);
  backend->Read(table.Rows(7, 1), new_row);
  EXPECT_EQ(old_row, new_row);
}

TEST(RopePositions, CoversNoMoreThanTheContext) {
  const auto backend = kernels::MakeReferenceBackend();
  RopePositions positions(*backend, Plain(4), 1500);
  EXPECT_EQ(positions.Cover(1100).value()->table.rows, 1500);
}

}  // namespace
}  // namespace winnow::model

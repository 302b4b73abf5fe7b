// Memory and weights of the CPU backend; the conformance tests cover its arithmetic.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/machine.h"
#include "kernels/backends.h"
#include "kernels/cpu/rows.h"
#include "kernels/ops.h"
#include "kernels/testing/random_blocks.h"

namespace winnow::kernels {
namespace {

class CpuBackendTest : public ::testing::Test {
 protected:
  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ =
      std::move(MakeCpuBackend({.pool = &pool_, .target = ""}).value());
};

TEST_F(CpuBackendTest, RunsOnTheBestTargetUnlessAskedOtherwise) {
  EXPECT_EQ(backend_->target(), CpuTargets().front());
  const auto slowest = MakeCpuBackend({.pool = &pool_, .target = CpuTargets().back()});
  EXPECT_EQ(slowest.value()->target(), CpuTargets().back());
}

TEST_F(CpuBackendTest, KnowsCpuFamiliesByName) {
  for (const char* family : {"", "intel", "amd", "zen5", "other"}) {
    const auto made = MakeCpuBackend({.pool = &pool_, .target = "", .family = family});
    EXPECT_TRUE(made.has_value()) << family;
  }
  const auto none = MakeCpuBackend({.pool = &pool_, .target = "", .family = "acme"});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "cpu: found CPU family acme, expected intel, amd, zen5 or other");
}

TEST_F(CpuBackendTest, NamesTheTargetsItHasWhenAskedForAnother) {
  const auto none = MakeCpuBackend({.pool = &pool_, .target = "AVX9"});
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("AVX9"), std::string::npos);
  for (const std::string& target : CpuTargets()) {
    EXPECT_NE(none.error().message.find(target), std::string::npos) << target;
  }
}

#if HWY_ARCH_X86
TEST(ForTarget, TakesTheNextBestKernelsWhereAFileHasNoneForTheTarget) {
  EXPECT_EQ(&cpu::RowKernelsFor(HWY_AVX3_DL), &cpu::RowKernelsFor(HWY_AVX3));
  EXPECT_NE(&cpu::RowKernelsFor(HWY_AVX3), &cpu::RowKernelsFor(HWY_AVX2));
}
#endif

TEST_F(CpuBackendTest, RefusesMemoryThatTheSystemDoesNotHave) {
  const int64_t bytes = int64_t{1} << 60;
  const auto refused = backend_->Allocate(bytes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find(std::to_string(bytes)), std::string::npos);
}

TEST_F(CpuBackendTest, ReleasedPagesAreZeroAndTheOthersStay) {
  constexpr int64_t kFloats =
      16 << 10;  // 64 KiB, whole pages on any machine with pages up to 16 KiB
  auto storage = std::move(backend_->Allocate(4 * kFloats).value());
  const Matrix all{storage.get(), 0, 1, kFloats, kFloats};
  std::vector<float> values(kFloats);
  backend_->Read(all, values);
  EXPECT_EQ(values, std::vector<float>(kFloats)) << "fresh memory";
  backend_->Write(all, std::vector<float>(kFloats, 1.0f));
  // From inside the first page to the end: the first page must keep its content.
  backend_->Release(*storage, 8, 4 * kFloats - 8);
  backend_->Read(all, values);
  EXPECT_EQ(values.front(), 1.0f);
  EXPECT_EQ(values[1000], 1.0f);
  EXPECT_EQ(values.back(), 0.0f);
}

TEST_F(CpuBackendTest, GrowingMemoryIsCommittedInSmallSteps) {
  constexpr int64_t kBytes = 64 << 20, kStep = 2 << 20;
  auto storage = std::move(backend_->AllocateGrowing(kBytes).value());
  const int64_t before = ResidentBytes();
  for (int64_t at = 0; at < kBytes; at += kStep) {
    backend_->Write({storage.get(), at / 4, 1, 1, 1}, std::vector<float>{1});
  }
  EXPECT_LT(ResidentBytes() - before, kBytes / 8);
}

TEST_F(CpuBackendTest, HugePagesKeepTheContentAndReleasedPartsAreZero) {
  constexpr int64_t kFloats = 2 << 20;
  constexpr int64_t kBytes = 4 * kFloats;
  auto storage = std::move(backend_->AllocateGrowing(kBytes).value());
  const Matrix all{storage.get(), 0, 1, kFloats, kFloats};
  std::vector<float> values(kFloats);
  std::iota(values.begin(), values.end(), 0.0f);
  backend_->Write(all, values);
  // Adjacent ranges, a gap, and the end past the last whole huge page.
  const ByteRange used[] = {{0, kBytes / 3}, {kBytes / 3, kBytes / 2}, {kBytes / 2 + 4096, kBytes}};
  backend_->UseHugePages(*storage, used);
  backend_->UseHugePages(*storage, used);
  std::vector<float> found(kFloats);
  backend_->Read(all, found);
  EXPECT_EQ(found, values);
  const int64_t before = ResidentBytes();
  backend_->Release(*storage, kBytes / 4, kBytes / 2);
  EXPECT_LT(ResidentBytes() - before, -kBytes / 4) << "given back from huge pages too";
  std::fill_n(values.begin() + kFloats / 4, kFloats / 2, 0.0f);
  backend_->Read(all, found);
  EXPECT_EQ(found, values);
}

TEST_F(CpuBackendTest, MovesRowsInTheOrderGiven) {
  auto storage = std::move(backend_->Allocate(4 * 8).value());
  const Matrix m{storage.get(), 0, 4, 2, 2};
  backend_->Write(m, std::vector<float>{0, 1, 10, 11, 20, 21, 30, 31});
  const int32_t from[] = {1, 3, 2}, to[] = {0, 1, 2};
  backend_->MoveRows(*storage, 0, 8, from, to);
  std::vector<float> values(8);
  backend_->Read(m, values);
  EXPECT_EQ(values, (std::vector<float>{10, 11, 30, 31, 20, 21, 30, 31}));
}

TEST_F(CpuBackendTest, RefusesAWeightOfTheWrongSize) {
  const std::vector<std::byte> bytes(33);
  const auto refused = backend_->LoadWeight({.name = "blk.0.w",
                                             .type = TensorType::kQ8_0,
                                             .rows = 1,
                                             .cols = 32,
                                             .bytes = bytes,
                                             .keep_alive = nullptr});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "blk.0.w: 33 bytes of weights, expected 34");
}

TEST_F(CpuBackendTest, GetsRowsOfEveryType) {
  constexpr int64_t kRows = 5, kCols = 512;
  for (const TensorType type : testing::kAllTypes) {
    SCOPED_TRACE(gguf::GetTypeInfo(type).name);
    Rng rng(3);
    const std::vector<std::byte> blocks = testing::RandomBlocks(type, kRows * kCols, rng);
    std::vector<float> expected(kRows * kCols);
    Dequantize(type, blocks, expected);
    auto weight = std::move(backend_
                                ->LoadWeight({.name = "w",
                                              .type = type,
                                              .rows = kRows,
                                              .cols = kCols,
                                              .bytes = blocks,
                                              .keep_alive = nullptr})
                                .value());
    auto storage = std::move(backend_->Allocate(3 * kCols * 4).value());
    const Matrix out{storage.get(), 0, 3, kCols, kCols};
    const int32_t tokens[] = {4, 0, 4};
    backend_->GetRows(*weight, tokens, out);
    std::vector<float> found(3 * kCols);
    backend_->Read(out, found);
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t row = static_cast<size_t>(tokens[i / kCols]);
      ASSERT_EQ(found[i], expected[row * kCols + i % kCols]) << "element " << i;
    }
  }
}

}  // namespace
}  // namespace winnow::kernels

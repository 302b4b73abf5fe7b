#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;

// Entries that each layer keeps besides the window of 8.
std::vector<int64_t> LayerSizes(int64_t n, int64_t budget, int n_layers,
                                const char* parameters = "") {
  Harness h(Make(methods::PyramidKv(), parameters),
            {.n_layers = n_layers, .budget = budget, .capacity = n});
  h.Prefill(n, [](const testing::Cell& cell) { return cell.query % 3 == 0 ? 0.5 : 0.25; });
  std::vector<int64_t> sizes;
  int64_t sum = 0;
  for (int layer = 0; layer < n_layers; ++layer) {
    sizes.push_back(h.cache().n_slots(layer, 0) - 8);
    sum += h.cache().n_slots(layer, 0);
  }
  EXPECT_EQ(h.method().TotalSlots(budget, n, n_layers), sum);
  // MaxSlots holds for any number of layers; a single layer gets exactly the budget.
  if (n_layers > 1) {
    EXPECT_EQ(h.method().MaxSlots(budget, n), sizes[0] + 8);
  }
  return sizes;
}

// Sizes fall on a line from 250 to 6, in 15 steps that are not whole numbers, and use the whole
// budget.
TEST(PyramidKvTest, SizesLieOnALineAndAddUpToTheBudget) {
  const std::vector<int64_t> sizes = LayerSizes(2000, 136, 16);
  EXPECT_EQ(sizes, (std::vector<int64_t>{250, 233, 217, 201, 184, 168, 152, 136, 120, 104, 88, 72,
                                         55, 39, 23, 6}));
  for (const int n_layers : {1, 2, 3, 4, 7, 32}) {
    for (const int64_t budget : {9, 10, 16, 33, 100}) {
      int64_t sum = 0;
      for (const int64_t size : LayerSizes(700, budget, n_layers)) sum += size + 8;
      EXPECT_EQ(sum, budget * n_layers) << n_layers << " layers, budget " << budget;
    }
  }
}

TEST(PyramidKvTest, StepsOfTheAuthorsCodeAreEqual) {
  const std::vector<int64_t> sizes = LayerSizes(2000, 136, 16, "steps=equal");
  for (size_t layer = 0; layer < sizes.size(); ++layer) {
    EXPECT_EQ(sizes[layer], 250 - 16 * static_cast<int64_t>(layer));
  }
}

TEST(PyramidKvTest, SizesOfALongPrompt) {
  const MethodPtr method = Make(methods::PyramidKv(), "steps=equal");
  EXPECT_FALSE(method->traits().budget.held);
  // n=8000, c=512, 32 layers: 983, 953, ..., 53, and the window.
  int64_t sum = 0;
  for (int layer = 0; layer < 32; ++layer) sum += 983 - 30 * layer + 8;
  EXPECT_EQ(method->TotalSlots(512, 8000, 32), sum);
  EXPECT_EQ(method->MaxSlots(512, 8000), 991);
  EXPECT_EQ(Make(methods::PyramidKv())->TotalSlots(512, 8000, 32), 512 * 32);
}

TEST(PyramidKvTest, ShortPromptsKeepTheMeanInEveryLayer) {
  for (const int64_t size : LayerSizes(900, 512, 3)) EXPECT_EQ(size, 504);
  // A prompt that fits is kept whole.
  for (const int64_t size : LayerSizes(100, 100, 3)) EXPECT_EQ(size, 92);
}

TEST(PyramidKvTest, TheFirstLayerCannotKeepMoreThanThePrompt) {
  // Mean 92: the first layer would keep 180 and the last 4, but only 178 entries precede the
  // window.
  const std::vector<int64_t> sizes = LayerSizes(186, 100, 5);
  EXPECT_EQ(sizes.front(), 178);
  EXPECT_EQ(sizes.back(), 6);
}

TEST(PyramidKvTest, ChunksKeepThePyramid) {
  Harness h(Make(methods::PyramidKv()), {.n_layers = 4, .budget = 40});
  for (uint64_t chunk = 0; chunk < 12; ++chunk) h.Prefill(32, testing::RandomWeights(chunk));
  int64_t sum = 0;
  for (int layer = 0; layer < 4; ++layer) sum += h.cache().n_slots(layer, 0);
  EXPECT_EQ(sum, h.method().TotalSlots(40, 12 * 32, 4));
  EXPECT_GT(h.cache().n_slots(0, 0), h.cache().n_slots(3, 0));
}

}  // namespace
}  // namespace winnow::compression

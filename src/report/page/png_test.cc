#include "report/page/png.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "report/page/colours.h"

namespace winnow::report {
namespace {

uint32_t Number(std::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4)) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// Decodes a deflate stream of one block with fixed codes, following RFC 1951.
class Inflater {
 public:
  explicit Inflater(std::string_view bytes) : bytes_(bytes) {}

  std::string Read() {
    EXPECT_EQ(Bits(3), 0b011);
    std::string out;
    for (;;) {
      const int symbol = Symbol();
      if (symbol == 256) return out;
      if (symbol < 256) {
        out += static_cast<char>(symbol);
        continue;
      }
      constexpr int kLengths[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                  31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
      const int code = symbol - 257;
      const int length = kLengths[code] + (code < 8 || code == 28 ? 0 : Bits(code / 4 - 1));
      const int near = Code(5);
      int distance = 1 + near;
      if (near >= 4) distance = 1 + ((2 + near % 2) << (near / 2 - 1)) + Bits(near / 2 - 1);
      for (int i = 0; i < length; ++i) out += out[out.size() - static_cast<size_t>(distance)];
    }
  }

 private:
  int Bit() {
    const int bit = static_cast<uint8_t>(bytes_[at_ / 8]) >> at_ % 8 & 1;
    ++at_;
    return bit;
  }
  int Bits(int n) {
    int value = 0;
    for (int i = 0; i < n; ++i) value |= Bit() << i;
    return value;
  }
  int Code(int n) {
    int value = 0;
    for (int i = 0; i < n; ++i) value = value << 1 | Bit();
    return value;
  }
  int Symbol() {
    int code = Code(7);
    if (code < 0x18) return 256 + code;
    code = code << 1 | Bit();
    if (code < 0xC0) return code - 0x30;
    if (code < 0xC8) return 280 + code - 0xC0;
    return 144 + (code << 1 | Bit()) - 0x190;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

// The pixels of an image written by IndexedPng, with the zero byte before each row.
std::string DecodeRows(std::string_view png) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1A\n");
  png.remove_prefix(8);
  std::string rows;
  while (!png.empty()) {
    const size_t n = Number(png);
    if (png.substr(4, 4) == "IDAT") rows = Inflater(png.substr(8 + 2, n - 6)).Read();
    png.remove_prefix(12 + n);
  }
  return rows;
}

void ExpectReadsBack(int64_t width, int64_t height, const std::vector<uint8_t>& pixels) {
  const std::string rows =
      DecodeRows(IndexedPng(width, height, pixels, HeatPalette(Scheme::kLight)));
  ASSERT_EQ(static_cast<int64_t>(rows.size()), (width + 1) * height);
  for (int64_t y = 0; y < height; ++y) {
    ASSERT_EQ(rows[static_cast<size_t>(y * (width + 1))], '\0');
    for (int64_t x = 0; x < width; ++x) {
      ASSERT_EQ(static_cast<uint8_t>(rows[static_cast<size_t>(y * (width + 1) + 1 + x)]),
                pixels[static_cast<size_t>(y * width + x)]);
    }
  }
}

TEST(Png, NoiseReadsBack) {
  Rng rng(1);
  std::vector<uint8_t> pixels(57 * 31);
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(rng.Next() & 0xFF);
  ExpectReadsBack(57, 31, pixels);
}

TEST(Png, RunsOfEveryLengthReadBackAndAreSmall) {
  std::vector<uint8_t> pixels;
  for (int n = 1; n <= 300; ++n) pixels.insert(pixels.end(), static_cast<size_t>(n), n % 2 * 254);
  const auto width = static_cast<int64_t>(pixels.size()) / 3;
  pixels.resize(static_cast<size_t>(3 * width));
  ExpectReadsBack(width, 3, pixels);
  EXPECT_LT(IndexedPng(width, 3, pixels, HeatPalette(Scheme::kLight)).size(), pixels.size() / 10);
}

TEST(Png, RowsThatRepeatAreSmall) {
  Rng rng(2);
  std::vector<uint8_t> row(500), pixels;
  for (uint8_t& pixel : row) pixel = static_cast<uint8_t>(rng.Next() & 0xFF);
  for (int i = 0; i < 100; ++i) pixels.insert(pixels.end(), row.begin(), row.end());
  ExpectReadsBack(500, 100, pixels);
  EXPECT_LT(IndexedPng(500, 100, pixels, HeatPalette(Scheme::kLight)).size(), 4000U);
}

// The test vectors of RFC 4648, section 10.
TEST(Png, Base64) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
}

TEST(Png, HeatColoursChangeLightnessMonotonically) {
  const auto lightness = [](uint32_t c) {
    return 0.3 * (c >> 16 & 255) + 0.59 * (c >> 8 & 255) + 0.11 * (c & 255);
  };
  for (int i = 1; i < 255; ++i) {
    const auto& light = HeatPalette(Scheme::kLight);
    const auto& dark = HeatPalette(Scheme::kDark);
    EXPECT_LE(lightness(light[i]), lightness(light[i - 1])) << i;
    EXPECT_GE(lightness(dark[i]), lightness(dark[i - 1])) << i;
  }
  EXPECT_EQ(HexColour(HeatColour(0, Scheme::kLight)), "#f3f5ea");
  EXPECT_EQ(HeatColour(2, Scheme::kDark), HeatColour(1, Scheme::kDark));
  EXPECT_EQ(HeatFill(0), "class=\"cell\" fill=\"#f3f5ea\" style=\"--d:#20262c\"");
  EXPECT_EQ(HeatIndex(0), 0);
  EXPECT_EQ(HeatIndex(1), 254);
  EXPECT_EQ(HeatIndex(std::nan("")), 255);
}

}  // namespace
}  // namespace winnow::report

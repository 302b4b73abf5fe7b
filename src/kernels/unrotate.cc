#include "kernels/unrotate.h"

#include "kernels/hadamard.h"

namespace winnow::kernels {

void UnrotateRow(const HeadRows& keys, std::span<std::byte> row, std::span<const float> cos_sin,
                 const RopeTable& rope, std::span<float> key) {
  Dequantize(keys.type, row, key);
  if (keys.hadamard) TransformHead(key);
  const auto n_pairs = static_cast<size_t>(rope.n_rotated / 2);
  for (size_t pair = 0; pair < n_pairs; ++pair) {
    const size_t first = rope.interleaved ? 2 * pair : pair;
    const size_t second = rope.interleaved ? 2 * pair + 1 : pair + n_pairs;
    const double cosine = cos_sin[pair];
    const double sine = cos_sin[n_pairs + pair];
    // The rotation may also scale (YaRN), so the inverse divides by the square of the scale.
    const double scale = 1 / (cosine * cosine + sine * sine);
    const double x = key[first];
    const double y = key[second];
    key[first] = static_cast<float>((cosine * x + sine * y) * scale);
    key[second] = static_cast<float>((cosine * y - sine * x) * scale);
  }
  Quantize(keys.type, key, row);
}

}  // namespace winnow::kernels

#include "compression/score/projected_values.h"

#include <array>
#include <cmath>
#include <span>

#include "compression/score/stored_keys.h"

namespace winnow::compression::score {
namespace {

// Eight interleaved sums, which compilers vectorize.
double Dot(std::span<const float> a, std::span<const float> b) {
  std::array<float, 8> sums = {};
  size_t i = 0;
  for (; i + sums.size() <= a.size(); i += sums.size()) {
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (; i < a.size(); ++i) sum += double{a[i]} * b[i];
  for (const float one : sums) sum += one;
  return sum;
}

}  // namespace

std::vector<double> ProjectedNorms(const LayerCall& call, int q_head, Region region, Norm norm) {
  const int kv_head = q_head / call.group();
  const kernels::HeadRows values = call.cache.values(call.layer, kv_head);
  const auto dim = static_cast<size_t>(values.dim);
  std::vector<float> projection;  // [model_dim, value_dim]
  if (call.projections != nullptr) {
    projection.resize(static_cast<size_t>(call.projections->model_dim()) * dim);
    call.projections->Read(call.layer, q_head, projection);
  }
  std::vector<double> out;
  ForEachRow(call, kv_head, values, region.begin, region.end,
             [&](int64_t, std::span<const float> value) {
               double sum = 0;
               const auto add = [&](double x) { sum += norm == Norm::kL1 ? std::abs(x) : x * x; };
               if (projection.empty()) {
                 for (const float x : value) add(x);
               }
               for (size_t row = 0; row < projection.size(); row += dim) {
                 add(Dot(std::span<const float>(projection).subspan(row, dim), value));
               }
               out.push_back(norm == Norm::kL1 ? sum : std::sqrt(sum));
             });
  return out;
}

std::vector<double> MeanProjectedNorms(const LayerCall& call, int kv_head, Region region,
                                       Norm norm) {
  std::vector<double> mean(static_cast<size_t>(region.size()));
  for (int head = kv_head * call.group(); head < (kv_head + 1) * call.group(); ++head) {
    const std::vector<double> one = ProjectedNorms(call, head, region, norm);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / call.group();
  }
  return mean;
}

}  // namespace winnow::compression::score

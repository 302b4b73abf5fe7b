#include "compression/methods/attention_head.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "compression/numbers.h"

namespace winnow::compression::methods {
namespace {

constexpr size_t kExpWork = 16;  // an exponential, in multiply-adds

// scale * query . key for the keys [dim, out.size()].
void Logits(std::span<const float> query, std::span<const float> keys, float scale,
            std::span<double> out) {
  std::vector<float> dots(out.size());
  for (size_t d = 0; d < query.size(); ++d) {
    const std::span<const float> of_dim = keys.subspan(d * out.size(), out.size());
    for (size_t i = 0; i < out.size(); ++i) dots[i] += query[d] * of_dim[i];
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = double{scale} * dots[i];
}

void Exponentials(std::span<double> logits, double max, std::span<const double> factors) {
  for (double& x : logits) x = std::exp(x - max);
  for (size_t i = 0; i < factors.size(); ++i) logits[i] *= factors[i];
}

}  // namespace

HeadFit::HeadFit(HeadToFit head, const HeadFitOptions& options)
    : head_(std::move(head)),
      options_(options),
      max_(head_.queries.size() / head_.key_dim),
      mass_(max_.size()),
      square_(head_.n_entries),
      outputs_(max_.size(), head_.values.cols),
      factor_fit_(std::exp(-options.bound), std::exp(options.bound), options.steps) {
  if (max_.empty()) stage_ = Stage::kChoose;
}

int64_t HeadFit::Run(kernels::Backend& backend, int64_t max_work) {
  int64_t done = 0;
  while (stage_ != Stage::kDone && done < max_work) {
    const int64_t left = max_work - done;
    switch (stage_) {
      case Stage::kWeigh:
        done += Weigh(backend, left);
        break;
      case Stage::kChoose:
        Choose();
        break;
      case Stage::kWeighKept:
        done += WeighKept(backend, left);
        break;
      case Stage::kFactors:
        done += factor_fit_.Run(backend, weights_, mass_, left);
        if (factor_fit_.done()) Enter(options_.values ? Stage::kNormalise : Stage::kDone);
        break;
      case Stage::kNormalise:
        done += Normalise(backend, left);
        break;
      case Stage::kValues:
        done += value_fit_.Run(backend, weights_, outputs_, left);
        if (value_fit_.done()) Enter(Stage::kDone);
        break;
      case Stage::kDone:
        break;
    }
  }
  return done;
}

// Rows' weights for all entries are not kept: that would be as many numbers as queries times
// entries.
int64_t HeadFit::Weigh(kernels::Backend& backend, int64_t max_work) {
  const size_t n = head_.n_entries, work = n * (head_.key_dim + head_.values.cols + kExpWork);
  const size_t count = CountWithin(max_work, work, max_.size() - next_);
  Numbers weights(count, n);
  ForEachPart(backend, 0, count, 1, [&](size_t i, size_t) {
    const size_t row = next_ + i;
    const std::span<double> of_row = weights[i];
    Logits(query(row), head_.keys, head_.scale, of_row);
    max_[row] = *std::max_element(of_row.begin(), of_row.end(), ScoreLess);
    Exponentials(of_row, max_[row], head_.factors);
    const double mass = mass_[row] = std::accumulate(of_row.begin(), of_row.end(), 0.0);
    AddMultiples(outputs_[row], head_.values, {0, n}, 0,
                 [&](size_t rank) { return of_row[rank] / mass; });
  });
  ForEachPart(backend, 0, n, kPart, [&](size_t begin, size_t end) {
    for (size_t i = 0; i < count; ++i) {
      const double mass = mass_[next_ + i];
      for (size_t rank = begin; rank < end; ++rank) {
        const double weight = weights[i][rank];
        square_[rank] += weight * weight / (mass * mass);
      }
    }
  });
  next_ += count;
  if (next_ == max_.size()) Enter(Stage::kChoose);
  return static_cast<int64_t>(count * work);
}

void HeadFit::Choose() {
  std::vector<int32_t> ranks(head_.n_entries);
  std::iota(ranks.begin(), ranks.end(), 0);
  // What is protected comes first, the newest as ever.
  const auto n_protected = static_cast<ptrdiff_t>(head_.n_protected);
  std::rotate(ranks.begin(), ranks.end() - n_protected, ranks.end());
  std::sort(ranks.begin() + n_protected, ranks.end(), BestFirst{square_});
  const auto end = ranks.begin() + static_cast<ptrdiff_t>(head_.n_kept);
  kept_.assign(ranks.begin(), end);
  evicted_.assign(end, ranks.end());
  std::ranges::sort(kept_);
  std::ranges::sort(evicted_);
  const bool fits = !max_.empty() && (options_.biases || options_.values);
  Enter(fits ? Stage::kWeighKept : Stage::kDone);
}

int64_t HeadFit::WeighKept(kernels::Backend& backend, int64_t max_work) {
  const size_t n = kept_.size(), dim = head_.key_dim, work = n * (dim + kExpWork);
  if (next_ == 0) {
    // Only these are needed from here on.
    std::vector<float> keys;
    std::vector<double> factors;
    for (size_t d = 0; d < dim; ++d) {
      for (const int32_t rank : kept_) {
        keys.push_back(head_.keys[d * head_.n_entries + static_cast<size_t>(rank)]);
      }
    }
    for (const int32_t rank : kept_) {
      if (!head_.factors.empty()) factors.push_back(head_.factors[static_cast<size_t>(rank)]);
    }
    head_.keys = std::move(keys);
    head_.factors = std::move(factors);
    head_.values = {};
    weights_ = Numbers(max_.size(), n);
  }
  const size_t end = next_ + CountWithin(max_work, work, max_.size() - next_);
  ForEachPart(backend, next_, end, 1, [&](size_t row, size_t) {
    Logits(query(row), head_.keys, head_.scale, weights_[row]);
    Exponentials(weights_[row], max_[row], head_.factors);
  });
  const auto done = static_cast<int64_t>((end - next_) * work);
  next_ = end;
  if (next_ == max_.size()) Enter(options_.biases ? Stage::kFactors : Stage::kNormalise);
  return done;
}

int64_t HeadFit::Normalise(kernels::Backend& backend, int64_t max_work) {
  const std::span<const double> factors = factor_fit_.factors();
  const size_t work = 4 * kept_.size();
  const size_t end = next_ + CountWithin(max_work, work, max_.size() - next_);
  ForEachPart(backend, next_, end, 1, [&](size_t row, size_t) {
    const std::span<double> of_row = weights_[row];
    for (size_t i = 0; i < factors.size(); ++i) of_row[i] *= factors[i];
    const double sum = std::accumulate(of_row.begin(), of_row.end(), 0.0);
    for (double& x : of_row) x = Fraction(x, sum, 0);
  });
  const auto done = static_cast<int64_t>((end - next_) * work);
  next_ = end;
  if (next_ == max_.size()) Enter(Stage::kValues);
  return done;
}

}  // namespace winnow::compression::methods

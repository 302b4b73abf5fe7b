#include "compression/methods/attention_head.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "compression/numbers.h"

namespace winnow::compression::methods {
namespace {

// Work is counted in multiply-adds of doubles: one takes as long as several of floats.
constexpr size_t kFloatsPerWork = 8;
constexpr size_t kExpWork = 8;

// Rows per task: two tiles of Backend::Multiply.
constexpr size_t kRows = 12;

double Sum(std::span<const float> x) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> lanes = {};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += double{x[i + lane]};
  }
  for (; i < x.size(); ++i) lanes[0] += double{x[i]};
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

}  // namespace

HeadFit::HeadFit(HeadToFit head, const HeadFitOptions& options)
    : head_(std::move(head)),
      options_(options),
      max_(head_.queries.size() / head_.key_dim),
      mass_(max_.size()),
      square_(head_.n_entries),
      outputs_(max_.size(), head_.value_dim),
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

// scale * query . key of some rows with all keys in head_: out [row, entry].
void HeadFit::Logits(const kernels::Backend& backend, Rows rows, std::span<float> out) const {
  const size_t dim = head_.key_dim, n_rows = rows.end - rows.begin, n = out.size() / n_rows;
  std::vector<float> queries(n_rows * dim);
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = head_.scale * head_.queries[rows.begin * dim + i];
  }
  const auto height = static_cast<int64_t>(n_rows), depth = static_cast<int64_t>(dim),
             width = static_cast<int64_t>(n);
  backend.Multiply({.a = {queries.data(), height, depth, depth},
                    .b = {head_.keys.data(), depth, width, width},
                    .out = {out.data(), height, width, width}});
}

// exp(logit - max) * e^bias, in place of the logits.
void HeadFit::Exponentials(const kernels::Backend& backend, float max,
                           std::span<float> logits) const {
  backend.ExpMinusMax(logits, max);
  for (size_t i = 0; i < head_.factors.size(); ++i) logits[i] *= head_.factors[i];
}

// Outputs of some rows over all entries. Only few entries at a time are summed in floats: fitting
// the values amplifies the rounding error many times.
void HeadFit::AddOutputs(const kernels::Backend& backend, Rows rows,
                         std::span<const float> weights) {
  constexpr size_t kAtOnce = 256;
  const size_t n = head_.n_entries, n_rows = rows.end - rows.begin;
  const auto height = static_cast<int64_t>(n_rows), dim = static_cast<int64_t>(head_.value_dim);
  std::vector<float> sums(n_rows * head_.value_dim);
  for (size_t first = 0; first < n; first += kAtOnce) {
    const auto depth = static_cast<int64_t>(std::min(kAtOnce, n - first));
    backend.Multiply({.a = {&weights[first], height, depth, static_cast<int64_t>(n)},
                      .b = {&head_.values[first * head_.value_dim], depth, dim, dim},
                      .out = {sums.data(), height, dim, dim}});
    for (size_t i = 0; i < sums.size(); ++i) {
      outputs_.values[rows.begin * head_.value_dim + i] += double{sums[i]};
    }
  }
  for (size_t row = rows.begin; row < rows.end; ++row) {
    for (double& x : outputs_[row]) x *= Fraction(1, mass_[row], 0);
  }
}

// The rows' weights for all entries are not stored: that would take queries * entries numbers.
int64_t HeadFit::Weigh(kernels::Backend& backend, int64_t max_work) {
  const size_t n = head_.n_entries;
  const size_t work = n * ((head_.key_dim + head_.value_dim) / kFloatsPerWork + kExpWork);
  const Rows rows = {next_, next_ + CountWithin(max_work, work, max_.size() - next_)};
  std::vector<float> weights((rows.end - rows.begin) * n);
  const auto of_rows = [&](size_t begin, size_t end) {
    return std::span(weights).subspan((begin - rows.begin) * n, (end - begin) * n);
  };
  ForEachPart(backend, rows.begin, rows.end, kRows, [&](size_t begin, size_t end) {
    Logits(backend, {begin, end}, of_rows(begin, end));
    for (size_t row = begin; row < end; ++row) {
      const std::span<float> of_row = of_rows(row, row + 1);
      max_[row] = Largest(of_row);
      Exponentials(backend, max_[row], of_row);
      mass_[row] = Sum(of_row);
    }
    if (options_.values) AddOutputs(backend, {begin, end}, of_rows(begin, end));
  });
  ForEachPart(backend, 0, n, kPart, [&](size_t begin, size_t end) {
    for (size_t row = rows.begin; row < rows.end; ++row) {
      const std::span<const float> of_row = of_rows(row, row + 1);
      const double share = Fraction(1, mass_[row], 0);
      for (size_t rank = begin; rank < end; ++rank) {
        const double weight = of_row[rank] * share;
        square_[rank] += weight * weight;
      }
    }
  });
  const auto done = static_cast<int64_t>((rows.end - rows.begin) * work);
  next_ = rows.end;
  if (next_ == max_.size()) Enter(Stage::kChoose);
  return done;
}

void HeadFit::Choose() {
  std::vector<int32_t> ranks(head_.n_entries);
  std::iota(ranks.begin(), ranks.end(), 0);
  // Protected entries, the newest, come first.
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

// Later stages need only the kept entries.
void HeadFit::DropEvicted() {
  std::vector<float> keys, factors;
  for (size_t d = 0; d < head_.key_dim; ++d) {
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
  weights_ = Numbers(max_.size(), kept_.size());
}

int64_t HeadFit::WeighKept(kernels::Backend& backend, int64_t max_work) {
  if (next_ == 0) DropEvicted();
  const size_t n = kept_.size(), work = n * (head_.key_dim / kFloatsPerWork + kExpWork);
  const size_t stop = next_ + CountWithin(max_work, work, max_.size() - next_);
  ForEachPart(backend, next_, stop, kRows, [&](size_t begin, size_t end) {
    std::vector<float> weights((end - begin) * n);
    Logits(backend, {begin, end}, weights);
    for (size_t row = begin; row < end; ++row) {
      const auto of_row = std::span(weights).subspan((row - begin) * n, n);
      Exponentials(backend, max_[row], of_row);
      std::ranges::copy(of_row, weights_[row].begin());
    }
  });
  const auto done = static_cast<int64_t>((stop - next_) * work);
  next_ = stop;
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

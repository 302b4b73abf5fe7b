#include "oracle_case.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "base/log.h"
#include "base/log_sum_exp.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"
#include "safetensors_file.h"

namespace winnow::oracle {

Result<Case> Case::Read(const std::string& path) {
  WINNOW_ASSIGN(SafetensorsFile file, SafetensorsFile::Read(path));
  Case c;
  c.name = std::filesystem::path(path).stem().string();
  c.model_path = (std::filesystem::path(path).parent_path() / file.metadata["model"]).string();
  c.architecture = file.metadata["architecture"];
  c.weights = file.metadata["weights"];
  c.variant = file.metadata["variant"];
  c.context = std::strtoll(file.metadata["context"].c_str(), nullptr, 10);
  c.own_relative_error = std::strtod(file.metadata["relative_error"].c_str(), nullptr);
  c.own_kld = std::strtod(file.metadata["kld"].c_str(), nullptr);
  c.tokens = std::move(file.tensors["tokens"].integers);
  c.exact = std::move(file.tensors["exact"].floats);
  c.same = std::move(file.tensors["same"].floats);
  if (c.tokens.empty() || c.exact.empty() || c.exact.size() % c.tokens.size() != 0) {
    return Error{path + ": tokens and exact logits of matching length expected"};
  }
  c.vocabulary = static_cast<int64_t>(c.exact.size() / c.tokens.size());
  return c;
}

std::vector<std::string> CaseNames(const std::string& folder) {
  std::vector<std::string> names;
  if (!std::filesystem::is_directory(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<float>> ComputeLogits(const Case& c, const std::string& target) {
  NullLog log;
  WINNOW_ASSIGN(
      auto engine,
      runtime::Engine::Open(
          {.model_path = c.model_path, .n_threads = 2, .target = target, .context = c.context},
          log));
  WINNOW_ASSIGN(auto session,
                runtime::Session::Make(*engine, {.key_type = kernels::TensorType::kF32,
                                                 .value_type = kernels::TensorType::kF32}));
  std::vector<float> logits;
  logits.reserve(c.exact.size());
  const std::span<const int32_t> tokens = c.tokens;
  const size_t n_prefill = tokens.size() * 2 / 3;
  runtime::Session::PrefillOptions options;
  options.logits_from = 0;
  options.on_logits = [&](int64_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  };
  WINNOW_TRY(session->Prefill(tokens.first(n_prefill), options));
  for (const int32_t token : tokens.subspan(n_prefill)) {
    WINNOW_TRY(session->Decode(token));
    logits.insert(logits.end(), session->logits().begin(), session->logits().end());
  }
  if (logits.size() != c.exact.size()) {
    return Error{c.model_path + ": " + std::to_string(logits.size()) + " logits, expected " +
                 std::to_string(c.exact.size())};
  }
  return logits;
}

Distance Measure(const std::vector<float>& logits, const std::vector<float>& expected,
                 int64_t vocabulary) {
  Distance distance;
  double squares = 0, expected_squares = 0;
  const size_t width = static_cast<size_t>(vocabulary);
  const size_t n_rows = expected.size() / width;
  for (size_t row = 0; row < n_rows; ++row) {
    const std::span<const float> q = std::span(logits).subspan(row * width, width);
    const std::span<const float> p = std::span(expected).subspan(row * width, width);
    const double q_total = LogSumExp(q), p_total = LogSumExp(p);
    double kld = 0;
    for (size_t i = 0; i < width; ++i) {
      const double difference = static_cast<double>(q[i]) - p[i];
      squares += difference * difference;
      expected_squares += static_cast<double>(p[i]) * p[i];
      distance.max_difference = std::max(distance.max_difference, std::abs(difference));
      kld += std::exp(p[i] - p_total) * ((p[i] - p_total) - (q[i] - q_total));
    }
    distance.kld += kld / static_cast<double>(n_rows);
  }
  distance.relative_error = std::sqrt(squares / expected_squares);
  return distance;
}

}  // namespace winnow::oracle

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/thread_pool.h"
#include "kernels/backends.h"
#include "model/step.h"
#include "model/testing/tiny_model.h"

// For tests: a tiny model on a backend, and a step to run it.
namespace winnow::model::testing {

inline constexpr int kVocabulary = 70;

struct Loaded {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Step> step;

  std::unique_ptr<cache::Cache> NewCache(
      int64_t capacity = 100, kernels::TensorType type = kernels::TensorType::kF32) const {
    return cache::Cache::Make(*backend, {.shape = model->cache_shape(),
                                         .key_type = type,
                                         .value_type = type,
                                         .capacity = capacity})
        .value();
  }
};

// `n_threads` 0: the reference backend, whose products do not depend on the number of rows.
inline Loaded Load(const TinySpec& spec, int n_threads = 0, bool batch_invariant = false) {
  Loaded loaded;
  if (n_threads == 0) {
    loaded.backend = kernels::MakeReferenceBackend();
  } else {
    loaded.pool = std::make_unique<ThreadPool>(n_threads);
    loaded.backend =
        kernels::MakeCpuBackend(
            {.pool = loaded.pool.get(), .target = "", .batch_invariant = batch_invariant})
            .value();
  }
  NullLog log;
  auto model = Model::Load(TinyModel(spec), *loaded.backend, {}, log);
  if (!model) ADD_FAILURE() << model.error().message;
  loaded.model = std::move(model).value();
  loaded.step = std::make_unique<Step>(*loaded.model);
  return loaded;
}

// A prompt of n tokens, different for every `number`.
inline std::vector<int32_t> Tokens(int n, int number = 1) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens.push_back((i * 37 + number * 11) % kVocabulary);
  return tokens;
}

// A span with these tokens; the caller adds taps, callbacks and logits.
inline TokenSpan MakeSpan(cache::Cache& cache, const std::vector<int32_t>& tokens,
                          cache::Position first_position = 0) {
  return {.sequence = {.cache = &cache}, .tokens = tokens, .first_position = first_position};
}

}  // namespace winnow::model::testing

// What does a step of decode cost under a budget, against a full cache of that size? Sessions of
// all methods and of the full cache take turns, a token each, so that what disturbs the machine
// disturbs all of them alike.
//
//   winnow_kv_decode_bench MODEL.gguf DEPTH BUDGET STEPS THREADS METHOD...
//
// Each method reads DEPTH tokens in pieces of 512 and compresses to BUDGET entries; the full cache
// holds BUDGET tokens. One line a method: median milliseconds a step, and the median over the turns
// of its step's time divided by the full cache's of the same turn, with their quartiles.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "compression/registry.h"
#include "runtime/engine.h"
#include "runtime/session.h"

namespace winnow {
namespace {

constexpr int64_t kPiece = 512;  // of a prompt
constexpr int kWarmUp = 8;       // steps that do not count

struct Runner {
  std::string name;
  std::unique_ptr<runtime::Session> session;
  std::vector<double> milliseconds;  // [step]
};

double Quantile(std::vector<double> values, double share) {
  const auto place = values.begin() + static_cast<ptrdiff_t>(share * (values.size() - 1) + 0.5);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

std::vector<runtime::TokenId> RandomTokens(int64_t n, int64_t vocabulary) {
  Rng rng(1);
  std::vector<runtime::TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<runtime::TokenId>(rng.Below(static_cast<uint64_t>(vocabulary))));
  }
  return tokens;
}

// Null (and says why) where a session cannot be made or cannot read its prompt.
std::unique_ptr<runtime::Session> Ready(runtime::Engine& engine, const std::string& method,
                                        int64_t n_prompt, int64_t budget, int64_t n_steps) {
  runtime::SessionOptions options = {.context = n_prompt + n_steps};
  if (method != "full") {
    auto made = compression::MakeMethod(method);
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      return nullptr;
    }
    options.compression = {.method = *made, .size = budget, .prefill_chunk = kPiece};
  }
  auto session = runtime::Session::Make(engine, options);
  const int64_t vocabulary = engine.model().hyperparameters().vocabulary;
  const auto done = session ? (*session)->Prefill(RandomTokens(n_prompt, vocabulary))
                            : Result<bool>(session.error());
  if (!done) {
    std::fprintf(stderr, "%s: %s\n", method.c_str(), done.error().message.c_str());
    return nullptr;
  }
  std::fprintf(stderr, "%s: %lld tokens read\n", method.c_str(), static_cast<long long>(n_prompt));
  return std::move(*session);
}

int Run(runtime::Engine& engine, int64_t depth, int64_t budget, int n_steps,
        const std::vector<std::string>& methods) {
  std::vector<Runner> runners;
  for (const std::string& method : methods) {
    const int64_t n_prompt = method == "full" ? budget : depth;
    runners.push_back({method, Ready(engine, method, n_prompt, budget, n_steps + kWarmUp), {}});
    if (!runners.back().session) return 1;
  }
  const int64_t vocabulary = engine.model().hyperparameters().vocabulary;
  for (const runtime::TokenId token : RandomTokens(n_steps + kWarmUp, vocabulary)) {
    for (Runner& runner : runners) {
      const auto before = std::chrono::steady_clock::now();
      const auto done = runner.session->Decode(token);
      if (!done) {
        std::fprintf(stderr, "%s: %s\n", runner.name.c_str(), done.error().message.c_str());
        return 1;
      }
      runner.milliseconds.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before)
              .count());
    }
  }
  std::printf("| method | ms a step | of the full cache's time | quartiles |\n|---|---|---|---|\n");
  for (Runner& runner : runners) {
    std::vector<double> own, ratios;
    for (size_t step = kWarmUp; step < runner.milliseconds.size(); ++step) {
      own.push_back(runner.milliseconds[step]);
      ratios.push_back(runner.milliseconds[step] / runners[0].milliseconds[step]);
    }
    std::printf("| `%s` | %.2f | %.3f | %.3f to %.3f |\n", runner.name.c_str(), Quantile(own, 0.5),
                Quantile(ratios, 0.5), Quantile(ratios, 0.25), Quantile(ratios, 0.75));
  }
  return 0;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: %s MODEL.gguf DEPTH BUDGET STEPS THREADS METHOD...\n", argv[0]);
    return 2;
  }
  const int64_t depth = std::atoll(argv[2]), budget = std::atoll(argv[3]);
  const int n_steps = std::atoi(argv[4]);
  if (depth < 1 || budget < 1 || n_steps < 1) {
    std::fprintf(stderr, "DEPTH, BUDGET and STEPS: expected positive numbers\n");
    return 2;
  }
  winnow::NullLog log;
  auto engine = winnow::runtime::Engine::Open(
      {.model_path = argv[1],
       .n_threads = std::atoi(argv[5]),
       .context = std::max(depth, budget) + n_steps + winnow::kWarmUp},
      log);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  std::vector<std::string> methods = {"full"};
  methods.insert(methods.end(), argv + 6, argv + argc);
  return winnow::Run(**engine, depth, budget, n_steps, methods);
}

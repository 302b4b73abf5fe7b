// What does a decode step cost with a budget, compared with full caches? Sessions take turns, one
// token each, so that disturbances of the machine affect all of them equally.
//
//   winnow_kv_decode_bench MODEL.gguf DEPTH BUDGET STEPS THREADS [--text FILE] METHOD...
//
// Each method reads DEPTH tokens and compresses to BUDGET entries. Without --text the tokens are
// random and are read in chunks of 512. With --text they come from the file, are read at once, and
// the steps continue the text: random tokens hardly ever merge. A method is compared with two full
// caches of constant size: one of BUDGET entries, and one of as many entries as the method has
// after the prompt (EMS expands its rows to more entries than BUDGET). One line per method:
//   entries, rows   per KV head after the steps, mean over layers and heads
//   merged          entries merged into others, per step and KV head; in the prompt, per KV head
//   ms a step       median
//   of ...          median and quartiles, over the turns, of the step's time divided by the full
//                   cache's time in the same turn
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "compression/registry.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"

namespace winnow {
namespace {

using runtime::TokenId;

constexpr int64_t kPiece = 512;  // chunk of a random prompt, tokens
constexpr int kWarmUp = 8;       // steps that are not measured

struct Setup {
  std::string model_path;
  int64_t depth = 0;
  int64_t budget = 0;
  int n_steps = 0;
  int n_threads = 0;
  std::string text_path;  // empty: random tokens
  std::vector<std::string> methods;
};

struct Runner {
  std::string name;
  std::unique_ptr<runtime::Session> session;
  int64_t full_entries = 0;               // of the full cache to compare with
  std::vector<double> milliseconds = {};  // [step]
};

// Numbers of entries merged into others.
struct Merges {
  bool in_prompt = true;
  int64_t of_prompt = 0;
  int64_t of_steps = 0;
};

double Quantile(std::vector<double> values, double share) {
  const auto place = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// Empty, with a message on stderr, if the text has too few tokens or cannot be read.
std::vector<TokenId> Tokens(const runtime::Engine& engine, const Setup& setup) {
  const auto n = static_cast<size_t>(setup.depth + setup.n_steps + kWarmUp);
  std::vector<TokenId> tokens;
  if (setup.text_path.empty()) {
    const auto vocabulary = static_cast<uint64_t>(engine.model().hyperparameters().vocabulary);
    Rng rng(1);
    while (tokens.size() < n) tokens.push_back(static_cast<TokenId>(rng.Below(vocabulary)));
    return tokens;
  }
  std::ifstream file(setup.text_path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  // More than enough for n tokens, without encoding a whole book.
  text.resize(std::min(text.size(), 16 * n));
  tokens = engine.tokenizer().Encode(text);
  if (tokens.size() < n) {
    std::fprintf(stderr, "%s: found %zu tokens, expected %zu or more\n", setup.text_path.c_str(),
                 tokens.size(), n);
    return {};
  }
  tokens.resize(n);
  return tokens;
}

// A session that has read its prompt. Null, with a message on stderr, on failure.
std::unique_ptr<runtime::Session> Ready(runtime::Engine& engine, const std::string& method,
                                        std::span<const TokenId> prompt, const Setup& setup,
                                        Merges& merges) {
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  runtime::SessionOptions options = {.context = n_prompt + setup.n_steps + kWarmUp};
  if (method != "full") {
    auto made = compression::MakeMethod(method);
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      return nullptr;
    }
    options.compression = {.method = *made, .size = setup.budget};
    if (setup.text_path.empty()) options.compression.prefill_chunk = kPiece;
    options.compression.on_plan = [&merges](const cache::Plan& plan, const runtime::PlanContext&) {
      int64_t& n = merges.in_prompt ? merges.of_prompt : merges.of_steps;
      for (const cache::HeadPlan& head : plan.heads) {
        for (const cache::HeadPlan::Merge& merge : head.merges) n += merge.n_sources - 1;
      }
    };
  }
  auto session = runtime::Session::Make(engine, options);
  const auto done = session ? (*session)->Prefill(prompt) : Result<bool>(session.error());
  if (!done) {
    std::fprintf(stderr, "%s: %s\n", method.c_str(), done.error().message.c_str());
    return nullptr;
  }
  merges.in_prompt = false;
  std::fprintf(stderr, "%s: %lld tokens read\n", method.c_str(), static_cast<long long>(n_prompt));
  return std::move(*session);
}

struct Held {
  double entries = 0, rows = 0;  // per KV head
  int n_heads = 0;               // over all layers
};

Held HeldBy(const runtime::Session& session) {
  const cache::Cache& cache = session.cache();
  const cache::CacheShape& shape = cache.config().shape;
  Held held;
  held.n_heads = shape.n_layers * shape.n_kv_heads;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      held.entries += static_cast<double>(cache.n_slots(layer, head)) / held.n_heads;
      held.rows += static_cast<double>(cache.n_rows(layer, head)) / held.n_heads;
    }
  }
  return held;
}

// Milliseconds of a step; negative, with a message on stderr, on failure.
double TimeStep(Runner& runner, TokenId token) {
  const auto before = std::chrono::steady_clock::now();
  const auto done = runner.session->Decode(token);
  const auto after = std::chrono::steady_clock::now();
  if (!done) {
    std::fprintf(stderr, "%s: %s\n", runner.name.c_str(), done.error().message.c_str());
    return -1;
  }
  return std::chrono::duration<double, std::milli>(after - before).count();
}

void PrintRatios(const std::vector<double>& own, const std::vector<double>& base) {
  std::vector<double> ratios;
  for (size_t step = kWarmUp; step < own.size(); ++step) ratios.push_back(own[step] / base[step]);
  std::printf(" %.3f (%.3f to %.3f) |", Quantile(ratios, 0.5), Quantile(ratios, 0.25),
              Quantile(ratios, 0.75));
}

double MedianStep(const std::vector<double>& milliseconds) {
  return Quantile({milliseconds.begin() + kWarmUp, milliseconds.end()}, 0.5);
}

int Run(runtime::Engine& engine, const Setup& setup) {
  const std::vector<TokenId> tokens = Tokens(engine, setup);
  if (tokens.empty()) return 1;
  const auto first = [&](int64_t n) { return std::span(tokens).first(static_cast<size_t>(n)); };

  std::vector<Runner> runners;
  std::vector<Merges> merges(setup.methods.size());
  std::map<int64_t, Runner> full;  // [entries]
  const auto add_full = [&](int64_t n_entries) {
    if (full.contains(n_entries)) return true;
    Merges none;
    Runner& runner = full[n_entries];
    runner.name = "full";
    runner.session = Ready(engine, "full", first(n_entries), setup, none);
    return runner.session != nullptr;
  };
  if (!add_full(setup.budget)) return 1;
  for (size_t i = 0; i < setup.methods.size(); ++i) {
    const std::string& method = setup.methods[i];
    auto session = Ready(engine, method, first(setup.depth), setup, merges[i]);
    if (!session) return 1;
    const int64_t n_entries = std::llround(HeldBy(*session).entries);
    if (!add_full(n_entries)) return 1;
    runners.push_back({method, std::move(session), n_entries});
  }

  for (const TokenId token : std::span(tokens).subspan(static_cast<size_t>(setup.depth))) {
    for (auto& [n_entries, runner] : full) {
      runner.session->Truncate(n_entries - 1);
      runner.milliseconds.push_back(TimeStep(runner, token));
      if (runner.milliseconds.back() < 0) return 1;
    }
    for (Runner& runner : runners) {
      runner.milliseconds.push_back(TimeStep(runner, token));
      if (runner.milliseconds.back() < 0) return 1;
    }
  }

  std::printf(
      "| method | entries | rows | merged in a step | merged in the prompt | ms a step | of %lld "
      "entries in full | of as many entries in full |\n|---|---|---|---|---|---|---|---|\n",
      static_cast<long long>(setup.budget));
  for (const auto& [n_entries, runner] : full) {
    std::printf("| `full` | %lld | %lld | 0 | 0 | %.3f |", static_cast<long long>(n_entries),
                static_cast<long long>(n_entries), MedianStep(runner.milliseconds));
    PrintRatios(runner.milliseconds, full[setup.budget].milliseconds);
    std::printf(" 1 |\n");
  }
  for (size_t i = 0; i < runners.size(); ++i) {
    const Runner& runner = runners[i];
    const Held held = HeldBy(*runner.session);
    const double n_steps = static_cast<double>(runner.milliseconds.size());
    std::printf("| `%s` | %.0f | %.0f | %.2f | %.0f | %.3f |", runner.name.c_str(), held.entries,
                held.rows, static_cast<double>(merges[i].of_steps) / n_steps / held.n_heads,
                static_cast<double>(merges[i].of_prompt) / held.n_heads,
                MedianStep(runner.milliseconds));
    PrintRatios(runner.milliseconds, full[setup.budget].milliseconds);
    PrintRatios(runner.milliseconds, full[runner.full_entries].milliseconds);
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  winnow::Setup setup;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto text = std::find(arguments.begin(), arguments.end(), "--text");
  if (text != arguments.end() && text + 1 != arguments.end()) {
    setup.text_path = *(text + 1);
    arguments.erase(text, text + 2);
  }
  if (arguments.size() < 6 || arguments[5] == "--text") {
    std::fprintf(stderr,
                 "usage: %s MODEL.gguf DEPTH BUDGET STEPS THREADS [--text FILE] METHOD...\n",
                 argv[0]);
    return 2;
  }
  setup.model_path = arguments[0];
  setup.depth = std::atoll(arguments[1].c_str());
  setup.budget = std::atoll(arguments[2].c_str());
  setup.n_steps = std::atoi(arguments[3].c_str());
  setup.n_threads = std::atoi(arguments[4].c_str());
  setup.methods.assign(arguments.begin() + 5, arguments.end());
  if (setup.budget < 1 || setup.depth < setup.budget || setup.n_steps < 1) {
    std::fprintf(stderr,
                 "DEPTH, BUDGET and STEPS: expected positive numbers, DEPTH at least BUDGET\n");
    return 2;
  }
  winnow::NullLog log;
  auto engine =
      winnow::runtime::Engine::Open({.model_path = setup.model_path,
                                     .n_threads = setup.n_threads,
                                     .context = setup.depth + setup.n_steps + winnow::kWarmUp},
                                    log);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  return winnow::Run(**engine, setup);
}

// How fast are the tokenizers? Prints one line: load time, best time of several runs over a text,
// and megabytes per second on one thread.
//
//   winnow_tokenize_bench VOCABULARY.gguf TEXT [RUNS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

double Milliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int Run(const std::string& vocabulary, const std::string& text_path, int n_runs) {
  std::ifstream in(text_path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "tokenize_bench: cannot read %s\n", text_path.c_str());
    return 1;
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const double start = Milliseconds();
  auto file = gguf::File::Open(vocabulary);
  if (!file) {
    std::fprintf(stderr, "%s\n", file.error().message.c_str());
    return 1;
  }
  const auto tokenizer = tokenizer::Tokenizer::Load(std::move(file).value());
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const double load_ms = Milliseconds() - start;

  double best_ms = 1e300;
  size_t n_tokens = 0;
  for (int run = 0; run < n_runs; ++run) {
    const double before = Milliseconds();
    n_tokens = (*tokenizer)->Encode(text).size();
    best_ms = std::min(best_ms, Milliseconds() - before);
  }
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf("%s: load %.1f ms, %.2f MB -> %zu tokens in %.1f ms (best of %d): %.1f MB/s\n",
              vocabulary.c_str(), load_ms, megabytes, n_tokens, best_ms, n_runs,
              megabytes / best_ms * 1e3);
  return 0;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  const int n_runs = argc == 4 ? std::atoi(argv[3]) : 5;
  if (argc < 3 || argc > 4 || n_runs < 1) {
    std::fprintf(stderr, "usage: %s VOCABULARY.gguf TEXT [RUNS]\n", argv[0]);
    return 2;
  }
  return winnow::Run(argv[1], argv[2], n_runs);
}

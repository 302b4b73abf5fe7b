// Computes the perplexity of a text:  perplexity MODEL.gguf TEXT.txt
#include <winnow/winnow.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.gguf TEXT.txt\n", argv[0]);
    return 2;
  }
  const auto model = winnow::Model::Open(argv[1]);
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto tokens = model->Tokenize(text);
  if (!file || tokens.size() < 2) {
    std::fprintf(stderr, "%s: cannot be read, or has nothing to predict\n", argv[2]);
    return 1;
  }
  auto session = model->NewSession({.context = static_cast<int64_t>(tokens.size())});
  if (!session) {
    std::fprintf(stderr, "%s\n", session.error().message.c_str());
    return 1;
  }
  const auto scores = session->Score(
      tokens, {.on_progress = [](double done) { std::fprintf(stderr, "\r%3.0f %%", 100 * done); }});
  if (!scores) {
    std::fprintf(stderr, "%s\n", scores.error().message.c_str());
    return 1;
  }
  double sum = 0;
  for (size_t i = 1; i < scores->size(); ++i) sum += (*scores)[i];  // [0] is not predicted
  std::printf("\nperplexity %.4f over %zu tokens\n",
              std::exp(-sum / static_cast<double>(scores->size() - 1)), scores->size() - 1);
}
